"""Restore the snapshot's part about the last run from disk after a restart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgefed.coordinator.reports.logged_tables import logged_tables
from edgefed.coordinator.storage.run_store import Store
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.events.base.best_rounds import latest_rounds
from edgefed.events.base.device_rounds import LastDeviceTests, device_test
from edgefed.events.base.evaluation_views import ConfusionView
from edgefed.events.base.model import UNFINISHED
from edgefed.events.base.snapshot import (
    TEST_COUNTS,
    PreviousRunView,
    RoundView,
    RunView,
    Snapshot,
)

_OF_FLEET = ("fleet", "time", "devices", "alerts", "lines")
"""Fields of a snapshot that are about no run."""


def with_last_run(snapshot: Snapshot, store: Store) -> Snapshot:
    """Return a snapshot with the run that is to be resumed, or else the newest one, if any."""
    records = store.runs()
    if not records:
        return Snapshot(**{name: getattr(snapshot, name) for name in _OF_FLEET})
    unfinished = [record for record in records if record.status in UNFINISHED]
    record = unfinished[-1] if unfinished else records[0]
    rows = store.rounds(record.run)
    early_best, rounds = _round_views(rows)
    return snapshot.model_copy(
        update={
            "run": _run_view(record),
            "rounds": rounds,
            "early_best": early_best,
            "previous": _previous(store, records, record),
            "confusions": tuple(
                ConfusionView.model_validate(confusion)
                for confusion in store.confusions(record.run)
            ),
            **_reports(store.run_folder(record.run)),
            **_bytes(record, rows),
        }
    )


def _bytes(record: RunRecord, rows: list[dict[str, Any]]) -> dict[str, int]:
    """Return the bytes of a run: of the rounds so far, or all of them once it has ended."""
    if record.status not in UNFINISHED:
        return {"sent": record.bytes_down, "received": record.bytes_up}
    return {name: sum(row[name] for row in rows) for name in ("sent", "received")}


def _round_views(
    rows: list[dict[str, Any]],
) -> tuple[tuple[RoundView, ...], tuple[RoundView, ...]]:
    return latest_rounds((), [RoundView.model_validate(row) for row in rows])


def _previous(store: Store, records: list[RunRecord], record: RunRecord) -> PreviousRunView | None:
    """Return the newest run before ``record`` that has a round."""
    older = records[records.index(record) + 1 :]  # the newest is first
    for earlier in older:
        if rows := store.rounds(earlier.run):
            return PreviousRunView(run=earlier.run, rounds=_round_views(rows)[1])
    return None


def _reports(folder: Path) -> dict[str, Any]:
    """Return what the event log says of the run's tables and of tests, for a snapshot."""
    tests = LastDeviceTests(())

    def take_reply(event: Mapping[str, Any]) -> None:
        test = device_test(event)
        if test is not None:
            tests.put(test)

    return {"tables": logged_tables(folder, {"reply": take_reply}), "tests": tests.rows()}


def _run_view(record: RunRecord) -> RunView:
    ended = record.status not in UNFINISHED
    recipe = json.loads(record.recipe)
    return RunView(
        run=record.run,
        name=record.name,
        algorithm=record.algorithm,
        model=recipe["model"]["name"],
        min_devices=recipe["rounds"]["min_devices"],
        status=record.status,
        reason=record.reason,
        round=record.round,
        rounds=record.rounds,
        phase="done" if ended else "select",
        started_at=record.created,
        ended_at=record.ended,
        accuracy=record.accuracy,
        **{name: getattr(record, name) for name in TEST_COUNTS},
        loss=record.loss,
        weights_digest=record.weights_digest,
        class_names=record.class_names,
        restored=record.restored,
    )

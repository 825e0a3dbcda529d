"""A run that fails while the disk takes nothing is shown and announced as failed all the same."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.process.failed_run import note_failure
from edgefed.coordinator.storage.new_run import create_run
from edgefed.coordinator.storage.run_store import Store
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.errors import EdgeFedError, StorageError
from edgefed.process.clock import SystemClock


class Watchers:
    """What the devices, the folder of relays and the dashboards are given."""

    def __init__(self) -> None:
        self.records: list[RunRecord] = []
        self.events: list[tuple[str, dict[str, Any]]] = []

    def record(self, record: RunRecord) -> None:
        self.records.append(record)

    def sync(self, relays: object) -> None:
        assert relays == []

    def emit(self, kind: str, **fields: Any) -> None:
        self.events.append((kind, fields))


@pytest.mark.parametrize("is_full", [False, True])
def test_a_failed_run_is_told_whether_the_disk_takes_it_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    watchers: Any = Watchers()

    def refuse(record: RunRecord) -> None:
        raise StorageError("The disk is full.", code="storage.full", hint="free some space")

    with closing(Store(tmp_path, durable=False)) as store:
        run = create_run(store, Recipe(), SystemClock()).run
        with monkeypatch.context() as patched:
            if is_full:
                patched.setattr(store, "save_run", refuse)
            error = EdgeFedError("It broke.", code="broken", hint="mend it")
            note_failure(store, watchers, watchers, watchers, run, error, "2026-11-30T00:00:00Z")
        shown = store.run(run)
        (row,) = store.runs()
    fields = {"status": "failed", "reason": "It broke.", "error": "broken", "hint": "mend it"}
    for record in (shown, row, *watchers.records):
        assert fields.items() <= vars(record).items()
        assert record.ended == "2026-11-30T00:00:00Z"
    assert len(watchers.records) == 1
    told = {"run": run, "status": "failed", "reason": "It broke.", "round": 0}
    assert watchers.events == [("run", told)]
    with closing(Store(tmp_path, durable=False)) as store:
        assert (store.run(run).status == "failed") is not is_full, "only its row is lost"

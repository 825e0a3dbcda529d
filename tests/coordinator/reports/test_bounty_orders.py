"""Orders about label bounties as a coordinator takes them: written down, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.reports.bounty_orders import order_labels
from edgefed.coordinator.storage.new_run import create_run
from edgefed.coordinator.storage.run_store import Store
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.errors import EdgeFedError
from edgefed.events.base.bounty_tables import BountyView, bounty_table
from edgefed.events.base.method_tables import TableView
from edgefed.events.base.model import RunStatus
from edgefed.events.base.snapshot import DeviceSnapshot, RunView, Snapshot
from edgefed.sharing.bounty_report import BountyOrder
from tests.run_fixture import Ticking

NAMES = ("cat", "2", "dog")
WANTED = {"supplement": 0.5}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path, durable=False)
    yield made
    made.close()


def made(store: Store, labels: dict[str, Any] | None = None, **changes: Any) -> RunRecord:
    plan = Recipe.model_validate({"labels": WANTED if labels is None else labels})
    record = create_run(store, plan, Ticking())
    return replace(record, **{"status": "running", "classes": 3, "class_names": NAMES, **changes})


def bounty(device: str, label: int, status: Any = "open") -> BountyView:
    return BountyView(device=device, label=label, count=9, mixes=4, status=status)


def snapshot(run: str) -> Snapshot:
    bounties = (bounty("a", 0), bounty("a", 2, "closed"), bounty("gone", 2))
    devices = (DeviceSnapshot(device="a"), DeviceSnapshot(device="idle"))
    tables = (TableView(table=bounty_table(bounties)),)
    return Snapshot(run=RunView(run=run), devices=devices, tables=tables)


def order(
    store: Store, record: RunRecord, device: str = "", label: int | str | None = None
) -> dict[str, Any]:
    return order_labels(store, snapshot(record.run), record, "cancel", device, label)


@pytest.mark.parametrize(
    ("device", "label", "number", "open_ones", "closed"),
    [
        ("", None, None, 2, 1),
        ("a", None, None, 1, 1),
        ("gone", None, None, 1, 0),
        ("", "dog", 2, 1, 1),
        ("", "2", None, 0, 0),
        ("", 2, 2, 1, 1),
        ("", "0", 0, 1, 0),
        ("a", "cat", 0, 1, 0),
    ],
)
def test_an_order_is_written_down_with_what_it_concerns(
    store: Store,
    device: str,
    label: int | str | None,
    number: int | None,
    open_ones: int,
    closed: int,
) -> None:
    record = made(store)
    if not open_ones:  # the class named "2" is label 1, for which there is no bounty
        with pytest.raises(EdgeFedError, match="has no label bounty"):
            order(store, record, device, label)
        return
    assert order(store, record, device, label) == {
        "run": record.run,
        "number": 1,
        "action": "cancel",
        "device": device,
        "label": number,
        "bounties": {"open": open_ones, "closed": closed, "cancelled": 0},
    }
    assert store.bounty_orders(record.run) == [BountyOrder(1, "cancel", device, number)]


@pytest.mark.parametrize("status", ["finished", "aborted", "failed"])
def test_an_ended_run_takes_no_orders(store: Store, status: RunStatus) -> None:
    with pytest.raises(EdgeFedError, match=f"is {status}") as caught:
        order(store, made(store, status=status))
    assert (caught.value.code, caught.value.exit_code) == ("run.not_active", 2)


@pytest.mark.parametrize("status", ["waiting", "paused", "pausing", "finishing"])
def test_every_other_run_does(store: Store, status: RunStatus) -> None:
    assert order(store, made(store, status=status))["number"] == 1


@pytest.mark.parametrize(
    ("labels", "device", "label", "code", "exit_code", "words"),
    [
        ({}, "", None, "label.off", 2, "gives no supplements"),
        (None, "b", None, "device.unknown", 5, "No device b."),
        (None, "", "bird", "label.unknown", 5, "no label 'bird'"),
        (None, "", 3, "label.unknown", 5, "no label '3'"),
        (None, "", "-1", "label.unknown", 5, "no label '-1'"),
        (None, "", "", "label.unknown", 5, "no label ''"),
        (None, "idle", None, "label.bounty", 5, "has no label bounty"),
        (None, "gone", "cat", "label.bounty", 5, "no label bounty of gone for cat."),
    ],
)
def test_what_cannot_be_done_is_refused_and_not_written(
    store: Store,
    labels: dict[str, Any] | None,
    device: str,
    label: int | str | None,
    code: str,
    exit_code: int,
    words: str,
) -> None:
    record = made(store, labels)
    with pytest.raises(EdgeFedError) as caught:
        order(store, record, device, label)
    assert (caught.value.code, caught.value.exit_code) == (code, exit_code)
    assert words in caught.value.message
    assert caught.value.hint
    assert store.bounty_orders(record.run) == []


def test_an_unknown_label_is_told_the_known_ones(store: Store) -> None:
    hints = []
    for changes in ({}, {"class_names": ()}, {"class_names": (), "classes": 0}):
        with pytest.raises(EdgeFedError) as caught:
            order(store, made(store, **changes), label="9")
        hints.append(caught.value.hint)
    assert hints == [
        "its labels are cat, 2, dog",
        "its labels are 0 to 2",
        "wait until it has begun",
    ]


def test_bounties_of_another_run_are_not_meant(store: Store) -> None:
    record = made(store)
    with pytest.raises(EdgeFedError, match="has no label bounty"):
        order_labels(store, snapshot("r-other"), record, "open", "", None)

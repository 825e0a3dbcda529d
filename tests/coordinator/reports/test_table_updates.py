"""The coordinator sends what changed in the tables of a method, and survives a wrong ``view``."""

from __future__ import annotations

from typing import Any

import pytest

from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.wrapped_algorithm import WrappedAlgorithm
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.reports.table_updates import TableUpdates
from edgefed.events.base.method_tables import Column, MethodTable, method_table
from edgefed.events.base.model import Event
from tests.coordinator.model_algorithms import Layerwise, of
from tests.run_fixture import Ticking, recipe


class Showing(Layerwise):
    """Shows what a test says."""

    tables: Any = ()

    def view(self, state: State) -> tuple[MethodTable, ...]:
        del state
        if isinstance(self.tables, Exception):
            raise self.tables
        found: tuple[MethodTable, ...] = self.tables
        return found


def course(*steps: tuple[int, Any]) -> tuple[list[Event], EventJournal]:
    """Return the events that these tables make, one after another, each after a round."""
    algorithm = of(Showing, recipe())
    assert isinstance(algorithm, Showing)
    journal, events = EventJournal("tests", Ticking()), list[Event]()
    journal.emit("run", run="r-1", status="running")
    journal.listen(lambda event, _: events.append(event))
    updates = TableUpdates("r-1", algorithm, journal)
    for number, tables in steps:
        algorithm.tables = tables
        updates.tell(State(number, {}, {}))
    return events, journal


def one(value: float, **more: Any) -> MethodTable:
    return method_table("one", [Column(name="v")], [("k", [value])], **more)


def test_what_did_not_change_is_not_sent_again() -> None:
    events, _ = course((1, (one(1),)), (2, (one(1),)), (3, (one(2),)))
    assert [event.fields["round"] for event in events] == [1, 3]


def test_a_series_has_a_point_for_each_round_though_nothing_changed() -> None:
    same = one(1, series={"s": 5})
    _, journal = course((1, (same,)), (1, (same,)), (2, (same,)))
    (view,) = journal.snapshot.tables
    assert [(point.round, point.values) for point in view.history] == [(1, {"s": 5}), (2, {"s": 5})]


def test_a_table_that_the_method_no_longer_shows_is_removed() -> None:
    _, journal = course((1, (one(1),)), (2, ()))
    assert journal.snapshot.tables == ()
    events, journal = course((1, (one(1),)), (2, ()), (3, ()), (4, (one(1),)))
    assert [event.fields.get("gone", False) for event in events] == [False, True, False]
    assert [view.round for view in journal.snapshot.tables] == [4]


def test_another_run_begins_without_tables() -> None:
    _, journal = course((1, (one(1),)))
    journal.emit("run", run="r-2", status="running")
    assert journal.snapshot.tables == ()


def test_a_wrapper_passes_the_tables_on() -> None:
    inner = of(Showing, recipe())
    assert isinstance(inner, Showing)
    inner.tables = (one(1),)
    assert WrappedAlgorithm(inner).view(State(1, {}, {})) == (one(1),)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (KeyError("control\x1b"), "KeyError: 'control"),
        (("no table",), "TypeError: view returned str"),
        ((one(1), one(2)), "ValueError"),
        (None, "TypeError"),
    ],
)
def test_a_view_that_fails_is_one_warning_and_the_tables_stay(wrong: Any, reason: str) -> None:
    events, journal = course((1, (one(1),)), (2, wrong), (3, wrong), (4, (one(2),)))
    (note,) = [event.fields for event in events if event.kind == "note"]
    assert note["level"] == "warning"
    assert reason in note["text"]
    assert "\x1b" not in note["text"]
    (view,) = journal.snapshot.tables
    assert view.table.rows[0].cells == (2,)

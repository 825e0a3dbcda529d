"""The cost of an event does not depend on the size of the fleet."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from edgefed.events.base import bounty_tables, method_tables
from edgefed.events.base.bounty_tables import bounty_view
from edgefed.events.base.device_columns import roster_parts
from edgefed.events.base.method_tables import MethodTable, table_events, within_limits
from edgefed.events.base.model import Event
from edgefed.events.base.snapshot import Snapshot
from edgefed.events.methods import expert_tables, old_tables
from edgefed.events.state import fold
from edgefed.events.state.fold import SnapshotBuilder
from edgefed.sharing.bounty_report import Bounty, Budget

NOW = "2024-05-06T07:08:09.000Z"
REPLY = {"round": 1, "exchange": "r-1-0", "samples": 3, "bytes": 9, "seconds": 1.0, "accepted": 1}

EVENTS = [
    Event(time=NOW, kind="device", fields={"device": "d-00003", "state": "train", "fraction": 0.5}),
    Event(time=NOW, kind="device", fields={"device": "d-00003", "state": "lost"}),
    Event(time=NOW, kind="device", fields={"device": "new", "samples": 7, "joined": True}),
    Event(time=NOW, kind="reply", fields={**REPLY, "device": "d-00004", "outcome": "accepted"}),
    Event(time=NOW, kind="exchange", fields={"exchange": "r-1-0", "phase": "broadcast"}),
    Event(time=NOW, kind="scored", fields={"run": "r-1", "round": 1, "accuracy": 0.5}),
    Event(time=NOW, kind="run", fields={"run": "r-1", "status": "finishing"}),
    Event(
        time=NOW,
        kind="labels",
        fields={
            "run": "r-1",
            "bounties": [{"device": "d-00005", "label": 1, "count": 9, "mixes": 4}],
            "budgets": [{"device": "d-00006", "released": 4}],
            "removed": [["d-00007", 1]],
            "totals": {"open": 1},
        },
    ),
    *(
        Event(time=NOW, kind="table", fields=fields)
        for table in (
            *bounty_view([Bounty("d-00005", 1, 9, 4)], [Budget("d-00006", released=4)]),
            expert_tables.mixture_table(
                2, [expert_tables.mixture_row("d-00005", 3, 1, (0.5, 0.5), (0,))]
            ),
            expert_tables.load_table(2, 1, (0.5, 0.5), 0.7, {}, (), ()),
        )
        for view in within_limits([table])
        for fields in table_events("r-1", 1, view.model_copy(update={"round": -1}), view)
    ),
    Event(time=NOW, kind="note", fields={"text": "hello"}),
]

ALLOCATED = 30_000
"""Bytes: far more than an event takes, less than a list of 5,000 devices."""


def fleet(devices: int) -> SnapshotBuilder:
    """Return a builder that knows so many devices and a run."""
    builder = SnapshotBuilder(Snapshot(fleet="tests"))
    rows: list[dict[str, Any]] = [
        {"device": f"d-{number:05d}", "samples": number} for number in range(devices)
    ]
    for part in roster_parts(rows):
        builder.apply(Event(time=NOW, kind="roster", fields=part))
    builder.apply(Event(time=NOW, kind="run", fields={"run": "r-1", "status": "running"}))
    needs = (Bounty(row["device"], label, 9, 4) for row in rows for label in (0, 1))
    offers = (Budget(row["device"], released=3) for row in rows)
    mixtures = [expert_tables.mixture_row(row["device"], 3, 1, (0.5, 0.5), (0, 1)) for row in rows]
    tables: tuple[MethodTable, ...] = (
        *bounty_view(tuple(needs), tuple(offers)),
        expert_tables.mixture_table(2, mixtures),
        expert_tables.load_table(2, 1, (0.5, 0.5), 0.7, {}, (), ()),
    )
    for view in within_limits(tables):
        for fields in table_events("r-1", 1, None, view):
            builder.apply(Event(time=NOW, kind="table", fields=fields))
    assert len(builder.snapshot().bounties) == 2 * devices
    return builder


@contextmanager
def counted_steps() -> Iterator[dict[str, int]]:
    """Count the bytecodes that the modules of the fold execute; comprehensions are among them."""
    steps = {"executed": 0}

    def trace(frame: FrameType, what: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in (
            fold.__file__,
            bounty_tables.__file__,
            expert_tables.__file__,
            method_tables.__file__,
            old_tables.__file__,
        ):
            return None
        frame.f_trace_opcodes = True
        steps["executed"] += what == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield steps
    finally:
        sys.settrace(before)


def steps_of(builder: SnapshotBuilder, event: Event) -> int:
    with counted_steps() as steps:
        builder.apply(event)
    return steps["executed"]


@pytest.fixture(scope="module")
def fleets() -> tuple[SnapshotBuilder, SnapshotBuilder]:
    """A small and a large fleet; both get the same events in the same order."""
    return fleet(10), fleet(5_000)


@pytest.fixture(scope="module")
def large() -> SnapshotBuilder:
    """A large fleet whose mapping of devices has just grown."""
    builder = fleet(5_000)
    builder.apply(Event(time=NOW, kind="device", fields={"device": "grows the mapping"}))
    return builder


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: f"{event.kind}-{len(event.fields)}")
def test_the_steps_of_an_event_do_not_grow_with_the_fleet(
    event: Event, fleets: tuple[SnapshotBuilder, SnapshotBuilder]
) -> None:
    few, many = (steps_of(each, event) for each in fleets)
    assert few == many
    assert few > 50, "they are counted"


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: f"{event.kind}-{len(event.fields)}")
def test_no_event_copies_the_fleet(event: Event, large: SnapshotBuilder) -> None:
    """What runs in C, such as sorting and making a tuple, takes memory for its result."""
    tracemalloc.start()
    try:
        large.apply(event)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < ALLOCATED


def test_a_snapshot_is_made_once_for_all_who_ask() -> None:
    builder = fleet(10)
    first = builder.snapshot()
    assert builder.snapshot() is first
    builder.apply(EVENTS[0])
    second = builder.snapshot()
    assert second is not first
    assert (first.devices[3].state, second.devices[3].state) == ("idle", "train")

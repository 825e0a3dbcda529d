"""Label bounties and budgets: their events, the snapshot, and the line that people read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefed.events.fold import SnapshotBuilder
from edgefed.events.labels import STATUSES, label_events
from edgefed.events.model import Event
from edgefed.events.roster import MAX_CHARACTERS
from edgefed.events.snapshot import Snapshot
from edgefed.events.summary import summarise
from edgefed.sharing.label_report import Bounty, Budget, LabelReport
from edgefed.wire.envelope import decode, encode
from edgefed.wire.messages import EventMessage

NOW = "2024-05-06T07:08:09.000Z"
NOTHING = LabelReport()

OPEN = Bounty("b", 2, 10, 5)
CLOSED = Bounty("b", 3, 10, 5, offered=6, received=4, noise=6, status="closed")
CANCELLED = Bounty("a", 0, 8, 4, noise=8, status="cancelled")
BUDGET = Budget("a", released=7, mixes_left=3, epsilon=None)
REPORT = LabelReport((CANCELLED, OPEN, CLOSED), (BUDGET,))


def happens(kind: Any, **fields: Any) -> Event:
    return Event(time=NOW, kind=kind, fields=fields)


def told(before: LabelReport, after: LabelReport, run: str = "r-1") -> list[Event]:
    return [happens("labels", **fields) for fields in label_events(run, before, after)]


def begun(*devices: str) -> SnapshotBuilder:
    builder = SnapshotBuilder(Snapshot())
    builder.apply(happens("run", run="r-1", status="running"))
    for device in devices:
        builder.apply(happens("device", device=device, samples=3, joined=True))
    return builder


def folded(builder: SnapshotBuilder, events: Iterable[Event]) -> Snapshot:
    for event in events:
        builder.apply(event)
    return builder.snapshot()


def supplements(snapshot: Snapshot) -> dict[str, tuple[int, int, int]]:
    return {
        view.device: (view.open_bounties, view.received_mixes, view.noise_samples)
        for view in snapshot.devices
    }


def test_a_report_comes_back_from_its_events_as_lines() -> None:
    events = told(NOTHING, REPORT)
    lines = [Event.from_flat(json.loads(event.line())) for event in events]
    snapshot = folded(begun("a", "b"), lines)
    assert [view.model_dump() for view in snapshot.bounties] == [
        row.to_json() for row in REPORT.bounties
    ]
    assert [view.model_dump() for view in snapshot.budgets] == [BUDGET.to_json()]
    assert supplements(snapshot) == {"a": (0, 0, 8), "b": (1, 4, 6)}
    assert Snapshot.model_validate_json(snapshot.model_dump_json()) == snapshot


def test_an_event_has_the_rows_that_changed_and_no_others() -> None:
    closed = replace(OPEN, received=5, noise=5, status="closed")
    later = LabelReport((closed, CLOSED), (BUDGET,))
    (event,) = told(REPORT, later)
    assert event.fields == {
        "run": "r-1",
        "bounties": [closed.to_json()],
        "budgets": [],
        "removed": [["a", 0]],
        "totals": {"open": 0, "closed": 2, "cancelled": 0},
    }
    snapshot = folded(begun("a", "b"), [*told(NOTHING, REPORT), event])
    assert [(view.device, view.label) for view in snapshot.bounties] == [("b", 2), ("b", 3)]
    assert supplements(snapshot) == {"a": (0, 0, 0), "b": (0, 9, 11)}


def test_what_has_not_changed_is_no_event() -> None:
    assert told(REPORT, REPORT) == []
    assert told(NOTHING, NOTHING) == []


def test_a_budget_alone_brings_no_line() -> None:
    (event,) = told(REPORT, replace(REPORT, budgets=(replace(BUDGET, released=8),)))
    assert "totals" not in event.fields
    snapshot = folded(begun(), [event])
    assert [view.released for view in snapshot.budgets] == [8]
    assert snapshot.lines[0].text == "r-1 running"


@pytest.mark.parametrize(
    ("after", "text"),
    [
        (REPORT, "1 open, 1 closed, 1 cancelled"),
        (LabelReport((CLOSED,)), "1 closed"),
        (NOTHING, "none"),
    ],
)
def test_the_line_counts_all_bounties_of_the_run(after: LabelReport, text: str) -> None:
    before = LabelReport((replace(CLOSED, status="open"),))
    snapshot = folded(begun(), told(before, after))
    assert snapshot.lines[0].text == f"label bounties: {text}"
    flat = [json.loads(event.line()) for event in told(before, after)]
    assert [line.text for line in summarise(flat).lines] == [f"label bounties: {text}"]


def test_another_run_begins_without_bounties() -> None:
    builder = begun("a", "b")
    folded(builder, told(NOTHING, REPORT))
    builder.apply(happens("run", run="r-2", status="waiting"))
    snapshot = builder.snapshot()
    assert (snapshot.bounties, snapshot.budgets) == ((), ())
    assert supplements(snapshot) == {"a": (0, 0, 0), "b": (0, 0, 0)}
    builder.apply(happens("device", device="c", samples=1, joined=True))
    assert supplements(builder.snapshot())["c"] == (0, 0, 0)


def test_an_event_of_another_run_changes_no_bounties() -> None:
    snapshot = folded(begun("b"), told(NOTHING, REPORT, run="r-2"))
    assert (snapshot.bounties, supplements(snapshot)) == ((), {"b": (0, 0, 0)})


@pytest.mark.parametrize("sent", [False, True])
def test_a_device_that_joins_later_has_its_bounties(sent: bool) -> None:
    """After a restart of the coordinator, a run's bounties are there before its devices."""
    builder = begun()
    snapshot = folded(builder, told(NOTHING, REPORT))
    assert snapshot.devices == (), "a bounty makes no device"
    if sent:
        builder = SnapshotBuilder(Snapshot.model_validate_json(snapshot.model_dump_json()))
    builder.apply(happens("device", device="b", samples=3, joined=True))
    builder.apply(happens("roster", devices=["a"], samples=[4], joined=True))
    assert supplements(builder.snapshot()) == {"a": (0, 0, 8), "b": (1, 4, 6)}
    builder.apply(happens("device", device="b", forgotten=True))
    builder.apply(happens("device", device="b", samples=3, joined=True))
    assert supplements(builder.snapshot())["b"] == (1, 4, 6)


def test_events_about_many_bounties_fit_into_messages() -> None:
    rows = tuple(
        Bounty(f"device-{number:04d}-{'x' * 40}", label, 500, 250, offered=10**6, received=249)
        for number in range(400)
        for label in range(10)
    )
    events = told(NOTHING, LabelReport(rows, tuple(Budget(row.device) for row in rows[::10])))
    assert len(events) > 3
    assert [("totals" in event.fields) for event in events] == [False] * (len(events) - 1) + [True]
    for event in events:
        assert len(event.line()) < MAX_CHARACTERS + 1000
        flat = json.loads(event.line())
        message = EventMessage(session="ab" * 8, number=1, event=flat)
        assert decode(encode(message), EventMessage).event == flat
    snapshot = folded(begun(), events)
    assert (len(snapshot.bounties), len(snapshot.budgets)) == (4000, 400)


rows = st.builds(
    Bounty,
    st.sampled_from("ab"),
    st.integers(0, 2),
    st.just(9),
    st.just(4),
    received=st.integers(0, 4),
    status=st.sampled_from(STATUSES),
)
reports = st.builds(
    LabelReport,
    st.lists(rows, max_size=5, unique_by=lambda row: (row.device, row.label)).map(
        lambda found: tuple(sorted(found, key=lambda row: (row.device, row.label)))
    ),
)


@given(st.lists(reports, max_size=5))
def test_the_snapshot_has_the_newest_report(course: list[LabelReport]) -> None:
    builder = begun("a", "b")
    for before, after in zip([NOTHING, *course], course, strict=False):
        snapshot = folded(builder, told(before, after))
        shown = [view.model_dump() for view in snapshot.bounties]
        assert shown == [row.to_json() for row in after.bounties]

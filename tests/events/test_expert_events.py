"""Experts and mixtures: their events, the snapshot, and how they developed in a summary."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest

from edgefed.events.expert_events import (
    MAX_CELLS,
    MAX_ROUNDS,
    expert_events,
    problem_in_words,
    told_rows,
)
from edgefed.events.expert_history import MAX_COURSES, MAX_POINTS, MAX_TABLES
from edgefed.events.fold import SnapshotBuilder
from edgefed.events.model import Event
from edgefed.events.roster import MAX_CHARACTERS
from edgefed.events.snapshot import ExpertsView, MixtureView, Snapshot
from edgefed.events.summary import RunSummary, summarise
from edgefed.events.thinned import Thinned
from edgefed.wire.envelope import decode, encode
from edgefed.wire.messages import EventMessage

NOW = "2024-05-06T07:08:09.000Z"
VIEW = ExpertsView(
    experts=2, round=3, condition="label", load=(0.9, 0.1), entropy=0.3251, dead=(), labels=3
)
ROWS = {0: (0.5, 0.5), 1: (0.25, 0.75), 2: (1.0, 0.0)}
MIXTURE = MixtureView(device="b", samples=40, round=3, shares=(0.9, 0.1), kept=(0,))


def happens(kind: Any, **fields: Any) -> Event:
    return Event(time=NOW, kind=kind, fields=fields)


def told(
    view: ExpertsView = VIEW,
    rows: dict[int, tuple[float, ...]] | None = None,
    mixtures: Iterable[MixtureView] = (MIXTURE,),
    run: str = "r-1",
) -> list[Event]:
    changed = ROWS if rows is None else rows
    return [happens("experts", **fields) for fields in expert_events(run, view, changed, mixtures)]


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


def test_experts_come_back_from_their_events_as_lines() -> None:
    lines = [Event.from_flat(json.loads(event.line())) for event in told()]
    snapshot = folded(begun("a", "b"), lines)
    assert snapshot.experts is not None
    assert snapshot.experts.model_dump(exclude={"table", "rounds"}) == VIEW.model_dump(
        exclude={"table", "rounds"}
    )
    assert snapshot.experts.table == tuple(ROWS.values())
    assert [(row.round, row.load, row.entropy) for row in snapshot.experts.rounds] == [
        (3, (0.9, 0.1), 0.3251)
    ]
    assert snapshot.mixtures == (MIXTURE,)
    assert [(view.mixture, view.kept_experts) for view in snapshot.devices] == [
        ((), ()),
        ((0.9, 0.1), (0,)),
    ]
    assert Snapshot.model_validate_json(snapshot.model_dump_json()) == snapshot


def test_a_later_event_changes_its_rows_and_its_devices_only() -> None:
    other = MIXTURE.model_copy(update={"device": "a", "round": 4, "shares": (0.0, 1.0)})
    view = VIEW.model_copy(update={"round": 4, "load": (0.5, 0.5), "entropy": 0.6931})
    snapshot = folded(begun(), [*told(), *told(view, {1: (0.0, 1.0)}, [other])])
    assert snapshot.experts is not None
    assert snapshot.experts.table == ((0.5, 0.5), (0.0, 1.0), (1.0, 0.0))
    assert [row.round for row in snapshot.experts.rounds] == [3, 4]
    assert snapshot.mixtures == (other, MIXTURE)
    again = folded(begun(), [*told(), *told()])
    assert again.experts is not None
    assert len(again.experts.rounds) == 1, "a restart tells the same round again"


def test_old_rounds_leave_the_snapshot() -> None:
    course = [VIEW.model_copy(update={"round": number}) for number in range(MAX_ROUNDS + 5)]
    snapshot = folded(begun(), [event for view in course for event in told(view, {}, ())])
    assert snapshot.experts is not None
    numbers = [row.round for row in snapshot.experts.rounds]
    assert numbers == list(range(5, MAX_ROUNDS + 5))


def test_another_run_begins_without_experts() -> None:
    builder = begun("b")
    folded(builder, told())
    builder.apply(happens("run", run="r-2", status="waiting"))
    snapshot = builder.snapshot()
    assert (snapshot.experts, snapshot.mixtures, snapshot.devices[0].mixture) == (None, (), ())
    assert folded(builder, told(run="r-1")).experts is None, "an event of the run before"


@pytest.mark.parametrize("sent", [False, True])
def test_a_device_that_joins_later_has_its_mixture(sent: bool) -> None:
    builder = begun()
    snapshot = folded(builder, told())
    assert snapshot.devices == (), "a mixture makes no device"
    if sent:
        builder = SnapshotBuilder(Snapshot.model_validate_json(snapshot.model_dump_json()))
    builder.apply(happens("roster", devices=["a", "b"], samples=[4, 5], joined=True))
    assert [view.mixture for view in builder.snapshot().devices] == [(), (0.9, 0.1)]


def test_events_about_many_devices_and_a_large_table_fit_into_messages() -> None:
    experts, classes = 64, 1000
    row = (1 / 3,) * experts
    rows = dict.fromkeys(range(told_rows(experts, classes)), row)
    view = ExpertsView(experts=experts, load=row, divergence=row, labels=classes)
    mixtures = [
        MixtureView(device=f"device-{number:04d}", shares=row, kept=tuple(range(experts)))
        for number in range(500)
    ]
    events = told(view, rows, mixtures)
    assert len(rows) == MAX_CELLS // experts
    assert len(events) > 3
    for event in events:
        assert len(event.line()) < MAX_CHARACTERS + 1000
        flat = json.loads(event.line())
        message = EventMessage(session="ab" * 8, number=1, event=flat)
        assert decode(encode(message), EventMessage).event == flat
    snapshot = folded(begun(), events)
    assert snapshot.experts is not None
    assert (len(snapshot.experts.table), len(snapshot.mixtures)) == (len(rows), 500)


@pytest.mark.parametrize("number", [-1, MAX_CELLS])
def test_a_row_that_no_table_has_changes_nothing(number: int) -> None:
    builder = begun()
    with pytest.raises(ValueError, match="no row"):
        folded(builder, told(rows={number: (0.5, 0.5)}))
    assert builder.snapshot().experts is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"dead": (1,)}, "dead: e1"),
        ({"dead": tuple(range(8))}, "dead: e0 e1 e2 e3 e4 e5 …"),
        ({"load": (0.001, 0.999), "collapsed": True, "dead": (0,)}, "collapsed on e1"),
    ],
)
def test_what_is_wrong_in_words(changes: dict[str, Any], words: str) -> None:
    assert problem_in_words(VIEW.model_copy(update=changes)) == words


def flat(events: Iterable[Event]) -> list[dict[str, Any]]:
    return [json.loads(event.line()) for event in events]


def test_a_summary_has_the_course_of_the_experts() -> None:
    events = list[Event]()
    for number in range(200):
        view = VIEW.model_copy(update={"round": number, "load": (number / 200, 0.0)})
        share = (number / 200, 1 - number / 200)
        mixtures = [MIXTURE.model_copy(update={"round": number, "shares": share})]
        events += told(view, {1: share}, mixtures)
    summary = RunSummary.model_validate_json(summarise(flat(events)).model_dump_json())
    found = summary.experts
    assert found is not None
    assert (found.now.round, found.now.rounds) == (199, ())
    for points, most in ((found.loads, MAX_POINTS), (found.tables, MAX_TABLES)):
        assert most / 2 <= len(points) <= most + 1
        assert (points[0].round, points[-1].round) == (0, 199)
    assert found.tables[-1].rows[1] == (0.995, 1 - 199 / 200)
    (course,) = found.courses
    assert course.device == "b"
    assert course.points[-1] == (199, (0.995, 1 - 199 / 200))
    assert found.mixtures[0].round == 199


def test_a_summary_follows_some_devices_and_forgets_none() -> None:
    mixtures = [MIXTURE.model_copy(update={"device": f"d-{number:03d}"}) for number in range(90)]
    found = summarise(flat(told(mixtures=mixtures))).experts
    assert found is not None
    assert (len(found.courses), len(found.mixtures), found.more_mixtures) == (MAX_COURSES, 90, 0)


def test_a_summary_of_another_algorithm_has_no_experts() -> None:
    assert summarise(flat([happens("round", run="r-1", round=1)])).experts is None


@pytest.mark.parametrize("count", [0, 1, 5, 6, 7, 100, 101])
def test_a_thinned_course_is_evenly_spaced_and_ends_with_the_newest(count: int) -> None:
    course = Thinned[int](5)
    for number in range(count):
        course.put(number, -1)
        course.put(number, number)
    points = course.points()
    assert len(points) <= 6
    if count:
        assert (points[0], points[-1]) == (0, count - 1)
        assert len({b - a for a, b in pairwise(points[:-1])}) <= 1

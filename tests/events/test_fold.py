"""Any sequence of events folds into a snapshot that can be sent as JSON."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.events.base.best_rounds import MAX_ROUNDS, Best, best_of
from edgefed.events.base.bounty_tables import STATUSES
from edgefed.events.base.model import Event, EventKind, Phase, RunStatus
from edgefed.events.base.snapshot import Snapshot
from edgefed.events.state.fold import MAX_LINES, SnapshotBuilder
from edgefed.events.state.lines import describe
from edgefed.wire.messages import DeviceState
from tests.events.reference import plain_fold

NOW = "2024-05-06T07:08:09.000Z"

devices = st.sampled_from([f"device-{number:02d}" for number in range(4)])
runs = st.sampled_from(["r-0001-aaaa", "r-0002-bbbb"])
exchanges = st.sampled_from([f"r-0001-aaaa-{number}" for number in range(4)])
counts = st.integers(0, 2**53)
numbers = st.integers(1, 50)
texts = st.text(max_size=12)
loss = st.none() | st.floats(0, 1e30)
share = st.floats(0, 1)
seconds = st.floats(0, 1e7)
labels = st.integers(0, 2)
bounties = st.fixed_dictionaries(
    {"device": devices, "label": labels, "count": counts, "mixes": counts},
    optional={
        "offered": counts,
        "received": counts,
        "noise": counts,
        "status": st.sampled_from(STATUSES),
    },
)
budgets = st.fixed_dictionaries(
    {"device": devices},
    optional={
        "released": counts,
        "mixes_left": st.none() | counts,
        "epsilon": st.none() | seconds,
        "epsilon_left": st.none() | seconds,
    },
)

shares = st.lists(share, min_size=2, max_size=2)
mixtures = st.fixed_dictionaries(
    {"device": devices, "shares": shares, "kept": st.lists(labels, max_size=2)},
    optional={"samples": counts, "round": numbers},
)

layer_matches = st.fixed_dictionaries(
    {"layer": texts},
    optional={"local": counts, "atoms": counts, "holders": share, "objective": loss},
)

FIELDS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "run": st.fixed_dictionaries(
        {"run": runs, "status": st.sampled_from(get_args(RunStatus))},
        optional={
            "name": texts,
            "algorithm": texts,
            "model": texts,
            "rounds": counts,
            "round": counts,
            "reason": texts,
            "accuracy": st.none() | share,
            "loss": loss,
            "weights_digest": texts,
        },
    ),
    "round": st.fixed_dictionaries({"run": runs, "round": numbers}),
    "exchange": st.fixed_dictionaries(
        {"phase": st.sampled_from(get_args(Phase))},
        optional={
            "round": numbers,
            "exchange": exchanges,
            "question": texts,
            "detail": texts,
            "asked": counts,
            "wanted": counts,
            "quorum": counts,
            "deadline": seconds,
            "waiting": st.none()
            | st.fixed_dictionaries(
                {
                    "lost": st.lists(devices, max_size=2),
                    "online": st.lists(devices, max_size=2),
                    "more": st.integers(0, 2),
                    "until": st.just(NOW),
                }
            ),
        },
    ),
    "reply": st.fixed_dictionaries(
        {
            "round": numbers,
            "exchange": exchanges,
            "device": devices,
            "outcome": st.sampled_from(["accepted", "rejected", "refused", "failed", "late"]),
            "reason": texts,
            "samples": counts,
            "loss": loss,
            "bytes": counts,
            "seconds": seconds,
            "accepted": counts,
        },
        optional={
            "question": texts,
            "accuracy": st.none() | share,
            "shared": st.none() | st.fixed_dictionaries({"entries": counts, "group": counts}),
        },
    ),
    "scored": st.fixed_dictionaries(
        {
            "run": runs,
            "round": numbers,
            "accuracy": st.none() | share,
            "loss": loss,
            "train_loss": loss,
            "replies": counts,
            "late": counts,
            "seconds": seconds,
            "sent": counts,
            "received": counts,
        },
        optional={"device_accuracy": share, "device_loss": seconds},
    ),
    "device": st.fixed_dictionaries(
        {"device": devices},
        optional={
            "state": st.sampled_from((*get_args(DeviceState), "asked", "silent")),
            "fraction": share,
            "reason": texts,
            "exchange": exchanges,
            "samples": counts,
            "labels": st.lists(counts, max_size=4),
            "shape": st.lists(counts, max_size=3),
            "hardware": texts,
            "temperature": st.none() | st.floats(-40, 120),
            "memory": st.none() | counts,
            "sent": counts,
            "joined": st.just(True),
            "forgotten": st.just(True),
            "heard": st.just(True),
        },
    ),
    "roster": st.integers(0, 4).flatmap(
        lambda count: st.fixed_dictionaries(
            {"devices": st.lists(devices, min_size=count, max_size=count)},
            optional={
                "samples": st.lists(counts, min_size=count, max_size=count),
                "labels": st.lists(st.lists(counts, max_size=4), min_size=count, max_size=count),
                "hardware": st.lists(texts, min_size=count, max_size=count),
                "joined": st.just(True),
            },
        )
    ),
    "labels": st.fixed_dictionaries(
        {
            "run": runs,
            "bounties": st.lists(bounties, max_size=3),
            "budgets": st.lists(budgets, max_size=2),
            "removed": st.lists(st.tuples(devices, labels).map(list), max_size=2),
        },
        optional={"totals": st.dictionaries(st.sampled_from(STATUSES), counts)},
    ),
    "experts": st.fixed_dictionaries(
        {
            "run": runs,
            "experts": st.just(2),
            "round": numbers,
            "rows": st.lists(st.tuples(labels, shares).map(list), max_size=2),
            "mixtures": st.lists(mixtures, max_size=3),
        },
        optional={
            "condition": texts,
            "load": shares,
            "entropy": st.none() | share,
            "dead": st.lists(labels, max_size=2),
            "collapsed": st.booleans(),
            "divergence": st.lists(st.none() | share, max_size=2),
            "labels": labels,
        },
    ),
    "matching": st.fixed_dictionaries(
        {
            "run": runs,
            "total": labels,
            "layers": st.lists(st.tuples(labels, layer_matches).map(list), max_size=3),
        },
        optional={
            "round": st.integers(0, 5),
            "matched": labels,
            "devices": counts,
            "growth": st.none() | share,
        },
    ),
    "table": st.fixed_dictionaries(
        {
            "run": runs,
            "round": st.integers(0, 5),
            "name": st.sampled_from(["a", "b"]),
            "columns": st.just([{"name": "value"}]),
            "rows": st.lists(
                st.tuples(st.sampled_from(["x", "y", "y/2", "y/10"]), share).map(list),
                max_size=3,
                unique_by=lambda row: row[0],
            ),
            "removed": st.lists(st.sampled_from(["x", "y/2"]), max_size=1),
            "anew": st.booleans(),
            "left_out": counts,
        },
        optional={
            "series": st.fixed_dictionaries({"s": share}),
            "gone": st.booleans(),
            "key": st.sampled_from(["device", "label"]),
        },
    ),
    "confusion": st.fixed_dictionaries(
        {
            "run": runs,
            "place": st.sampled_from(["coordinator", "devices"]),
            "round": numbers,
            "counts": st.lists(st.lists(counts, min_size=2, max_size=2), min_size=2, max_size=2),
        },
        optional={"devices": counts, "tested": counts},
    ),
    "order": st.fixed_dictionaries(
        {
            "action": texts,
            "by": texts,
            "about": texts,
            "outcome": st.sampled_from(["taken", "refused"]),
            "reason": texts,
        }
    ),
    "alert": st.fixed_dictionaries(
        {
            "alert": st.sampled_from(["run_failed", "lost_devices", "no_round"]),
            "about": texts,
            "text": texts,
            "over": st.booleans(),
        }
    ),
    "note": st.fixed_dictionaries(
        {"text": texts}, optional={"level": st.sampled_from(["info", "warning"])}
    ),
}


def happens(kind: EventKind, **fields: Any) -> Event:
    return Event(time=NOW, kind=kind, fields=fields)


def event(kind: EventKind) -> st.SearchStrategy[Event]:
    return FIELDS[kind].map(lambda fields: Event(time=NOW, kind=kind, fields=fields))


events = st.one_of([event(kind) for kind in get_args(EventKind)])


def folded(*course: Event, start: Snapshot | None = None) -> Snapshot:
    builder = SnapshotBuilder(start or Snapshot(fleet="tests"))
    for each in course:
        builder.apply(each)
    return builder.snapshot()


def begun() -> Snapshot:
    return folded(happens("run", run="r-1", name="n", rounds=3, status="running"))


def test_every_kind_is_covered() -> None:
    assert FIELDS.keys() == set(get_args(EventKind))


def named(event: Event) -> list[str]:
    if "device" in event.fields:
        return [event.fields["device"]]
    return event.fields["devices"] if event.kind == "roster" else []


@settings(max_examples=20, deadline=None)
@given(course=st.lists(events, max_size=25), looks=st.sets(st.integers(0, 25)))
def test_the_snapshot_is_that_of_the_plain_fold(course: list[Event], looks: set[int]) -> None:
    """However often somebody looks at it meanwhile."""
    builder, expected = SnapshotBuilder(Snapshot(fleet="tests")), Snapshot(fleet="tests")
    for number, each in enumerate(course):
        builder.apply(each)
        expected = plain_fold(expected, each)
        if number in looks:
            assert builder.snapshot() == expected
    assert builder.snapshot() == expected


@settings(max_examples=25, deadline=None)
@given(course=st.lists(events, max_size=25))
def test_any_course_folds_and_travels(course: list[Event]) -> None:
    snapshot = folded(*course)
    assert Snapshot.model_validate_json(snapshot.model_dump_json()) == snapshot
    known: set[str] = set()
    for each in course:
        forgotten = "forgotten" in each.fields
        known = known - set(named(each)) if forgotten else known | set(named(each))
    assert [view.device for view in snapshot.devices] == sorted(known)
    for each in course:
        line = describe(each)
        assert line is None or (line.mark and line.time == NOW)


@settings(max_examples=25, deadline=None)
@given(course=st.lists(events, max_size=12), cut=st.integers(0, 12))
def test_a_watcher_that_joins_late_sees_the_same(course: list[Event], cut: int) -> None:
    """It is given the snapshot as JSON and the events after it as lines."""
    early = folded(*course[:cut])
    joined = Snapshot.model_validate_json(early.model_dump_json())
    later = [Event.from_flat(_parsed(each.line())) for each in course[cut:]]
    assert folded(*later, start=joined) == folded(*course)


def _parsed(line: str) -> dict[str, Any]:
    flat: dict[str, Any] = json.loads(line)
    return flat


@pytest.mark.parametrize(
    "broken",
    [
        Event(time=NOW, kind="reply", fields={"device": "a", "outcome": "accepted"}),
        Event(time=NOW, kind="reply", fields={"device": "a", "outcome": "odd", "accepted": 1}),
        Event(time=NOW, kind="device", fields={"state": "lost"}),
        Event(time=NOW, kind="note", fields={}),
        Event(time=NOW, kind="run", fields={"status": "finished"}),
        Event(time=NOW, kind="alert", fields={"alert": "no_round", "over": False}),
        Event(time=NOW, kind="labels", fields={"bounties": [], "budgets": [], "removed": []}),
        Event(time=NOW, kind="labels", fields={"run": "r-1", "bounties": [], "budgets": []}),
    ],
    ids=lambda event: f"{event.kind}-{len(event.fields)}",
)
def test_a_broken_event_changes_nothing(broken: Event) -> None:
    builder = SnapshotBuilder(folded(happens("device", device="a"), start=begun()))
    before = builder.snapshot()
    with pytest.raises(KeyError):
        builder.apply(broken)
    builder.apply(happens("device", device="a"))
    assert builder.snapshot() == before


def test_folding_changes_nothing_that_was_there() -> None:
    before = begun()
    kept = before.model_dump_json()
    folded(happens("device", device="a", state="train"), happens("note", text="x"), start=before)
    assert before.model_dump_json() == kept


# -- runs ---------------------------------------------------------------------------------------


def test_a_run_begins_goes_on_and_ends() -> None:
    snapshot = begun()
    assert snapshot.run is not None
    assert (snapshot.run.status, snapshot.run.started_at) == ("running", NOW)
    ended = folded(happens("run", run="r-1", status="finished", accuracy=0.5), start=snapshot).run
    assert ended is not None
    assert (ended.status, ended.phase, ended.ended_at, ended.accuracy) == (
        "finished",
        "done",
        NOW,
        0.5,
    )
    assert ended.name == "n", "what an event does not name stays"


def test_another_run_begins_with_empty_curves_and_keeps_the_devices() -> None:
    row = happens("scored", run="r-1", round=1, accuracy=0.5, sent=5, received=6)
    snapshot = folded(row, happens("device", device="a"), start=begun())
    assert (len(snapshot.rounds), snapshot.sent, snapshot.received) == (1, 5, 6)
    end = happens("run", run="r-1", status="finished", sent=7, received=9)
    snapshot = folded(end, start=snapshot)
    assert (snapshot.sent, snapshot.received) == (7, 9), "with what crossed between rounds"
    snapshot = folded(happens("run", run="r-2", status="waiting"), start=snapshot)
    assert snapshot.run is not None
    assert (snapshot.run.run, snapshot.run.accuracy) == ("r-2", None)
    assert (snapshot.rounds, snapshot.sent, snapshot.received) == ((), 0, 0)
    assert [view.device for view in snapshot.devices] == ["a"]


def test_a_round_scored_again_is_one_point_and_the_last() -> None:
    rows = [happens("scored", run="r-1", round=k, loss=float(k)) for k in (1, 2, 3, 3, 2)]
    snapshot = folded(*rows, start=begun())
    assert [row.round for row in snapshot.rounds] == [1, 2], "the run went back"


def test_the_last_score_stays_where_a_round_was_not_tested() -> None:
    rows = [happens("scored", run="r-1", round=k, accuracy=a) for k, a in ((1, 0.5), (2, None))]
    run = folded(*rows, start=begun()).run
    assert run is not None
    assert run.accuracy == 0.5


def test_a_score_keeps_who_tested_it() -> None:
    counts = {"tested_devices": 1, "all_testers": 4, "tested_labels": 3, "all_labels": 10}
    judged = {**counts, "compared": False, "is_best": False}
    scored = happens("scored", run="r-1", round=1, accuracy=1.0, loss=0.0, **judged)
    shown = folded(scored, start=begun())
    assert shown.run is not None and shown.rounds[-1].compared is False
    for view in (shown.run, shown.rounds[-1]):
        assert view.model_dump(include=set(counts)) == counts
    assert any(
        "accuracy 1.000 · 1 of 4 devices · 3 of 10 labels" in line.text for line in shown.lines
    )


def test_curves_and_lines_are_bounded() -> None:
    rows = [happens("scored", run="r-1", round=number) for number in range(MAX_ROUNDS + 5)]
    snapshot = folded(*rows, start=begun())
    assert len(snapshot.rounds) == MAX_ROUNDS
    assert snapshot.rounds[-1].round == MAX_ROUNDS + 4
    assert len(snapshot.lines) == MAX_LINES
    assert str(MAX_ROUNDS + 4) in snapshot.lines[0].text, "newest first"


def test_the_best_rounds_of_a_long_run_are_kept_until_the_next_run() -> None:
    first = {2: {"accuracy": 0.9, "loss": 0.5}, 3: {"accuracy": 0.8, "loss": 0.2}}
    worse = {"accuracy": 0.7, "loss": 0.6}
    rows = [
        happens("scored", run="r-1", round=number, **first.get(number, worse))
        for number in range(1, 2 * MAX_ROUNDS)
    ]
    snapshot = folded(*rows, start=begun())
    known = (*snapshot.early_best, *snapshot.rounds)
    assert (best_of(known, "accuracy"), best_of(known, "loss")) == (Best(0.9, 2), Best(0.2, 3))
    assert [row.round for row in snapshot.early_best] == [2, 3]
    after = folded(happens("run", run="r-2", status="running"), start=snapshot)
    assert after.early_best == ()


def test_a_best_round_that_comparable_devices_tested_outlives_others() -> None:
    few: dict[str, object] = {"accuracy": 0.7, "is_best": False}
    judged: dict[int, dict[str, object]] = {1: {"accuracy": 1.0}, 2: {"is_best": True}}
    rows = [
        happens("scored", run="r-1", round=number, **{**few, **judged.get(number, {})})
        for number in range(1, MAX_ROUNDS + 9)
    ]
    snapshot = folded(*rows, start=begun())
    known = (*snapshot.early_best, *snapshot.rounds)
    assert best_of(known, "accuracy") == Best(0.7, 2)


def test_accepted_replies_do_not_push_out_what_went_wrong() -> None:
    wrong = happens("note", level="warning", text="slow")
    accepted = happens("reply", round=1, exchange="e", device="d", outcome="accepted", accepted=1)
    snapshot = folded(wrong, *[accepted] * (2 * MAX_LINES), wrong, start=begun())
    assert len(snapshot.lines) == MAX_LINES
    assert [line.mark for line in snapshot.lines if not line.routine] == ["!", "!", "·"]
    assert [line.mark for line in snapshot.lines[:2]] == ["!", "✓"], "newest first"


def opened(exchange: str = "r-1-0", **fields: Any) -> Event:
    return happens("exchange", exchange=exchange, phase="broadcast", wanted=3, **fields)


def test_a_new_exchange_begins_without_answers() -> None:
    reply = happens("reply", device="a", outcome="accepted", accepted=2, round=1, exchange="r-1-0")
    snapshot = folded(opened(), reply, start=begun())
    assert snapshot.run is not None
    assert snapshot.run.accepted == 2
    snapshot = folded(opened("r-1-1"), start=snapshot)
    assert snapshot.run is not None
    assert (snapshot.run.accepted, snapshot.run.opened_at) == (0, NOW)


@pytest.mark.parametrize("phase", ["collect", "merge", "evaluate"])
def test_a_new_phase_of_the_same_exchange_keeps_its_answers(phase: str) -> None:
    reply = happens("reply", device="a", outcome="accepted", accepted=2, round=1, exchange="r-1-0")
    later = Event(time="2030-01-01T00:00:00.000Z", kind="exchange", fields={"phase": phase})
    run = folded(opened(), reply, later, start=begun()).run
    assert run is not None
    assert (run.phase, run.accepted, run.opened_at) == (phase, 2, NOW)


def test_without_a_run_its_events_change_no_run() -> None:
    assert folded(opened(), happens("round", run="r-1", round=1)).run is None


# -- devices ------------------------------------------------------------------------------------


def test_a_lost_device_keeps_the_time_it_was_seen() -> None:
    lost = Event(
        time="2030-01-01T00:00:00.000Z", kind="device", fields={"device": "a", "state": "lost"}
    )
    view = folded(happens("device", device="a", samples=7, labels=[3, 4]), lost).devices[0]
    assert (view.state, view.seen_at, view.samples, view.labels) == ("lost", NOW, 7, (3, 4))


@pytest.mark.parametrize(
    ("outcome", "counts"),
    [
        ("accepted", (1, 0, 0)),
        ("rejected", (0, 1, 0)),
        ("refused", (0, 1, 0)),
        ("late", (0, 0, 1)),
        ("failed", (0, 0, 0)),
    ],
)
def test_outcomes_are_counted_by_device(outcome: str, counts: tuple[int, int, int]) -> None:
    reply = happens("reply", device="a", outcome=outcome, accepted=0, round=1, loss=0.5)
    view = folded(reply, start=begun()).devices[0]
    assert (view.accepted, view.rejected, view.late) == counts
    assert view.loss == 0.5


SHARED = {"question": "mean", "shared": {"entries": 3, "group": 40}, "bytes": 900}


def test_what_a_device_shares_is_kept_until_another_run() -> None:
    reply = {"device": "a", "accepted": 1, "round": 1, "loss": None}
    snapshot = folded(happens("reply", **reply, **SHARED, outcome="accepted"), start=begun())
    view = snapshot.devices[0]
    assert (view.shared_entries, view.shared_group, view.shared_bytes) == (3, 40, 900)
    trained = happens("reply", **reply, outcome="accepted", question="fit", shared=None, bytes=5)
    assert folded(trained, start=snapshot).devices[0].shared_bytes == 900
    again = {**SHARED, "shared": {"entries": 1, "group": 7}}
    later = folded(happens("reply", **reply, **again, outcome="accepted"), start=snapshot)
    assert (later.devices[0].shared_entries, later.devices[0].shared_group) == (1, 7)
    view = folded(happens("run", run="r-2", status="waiting"), start=snapshot).devices[0]
    assert (view.shared_entries, view.shared_group, view.shared_bytes) == (0, 0, 0)


@pytest.mark.parametrize("outcome", ["rejected", "late", "failed"])
def test_averages_that_were_not_merged_are_not_shared(outcome: str) -> None:
    reply = happens("reply", device="a", accepted=0, round=1, **SHARED, outcome=outcome)
    assert folded(reply, start=begun()).devices[0].shared_entries == 0


# -- lines --------------------------------------------------------------------------------------

REPLY = {"device": "d", "round": 2, "bytes": 2048, "samples": 9, "seconds": 3.0, "accepted": 1}


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (
            happens("reply", **REPLY, outcome="accepted", loss=0.25),
            ("✓", "d  r2  2.0 KiB  n=9  loss 0.250  in 3 s"),
        ),
        (
            happens("reply", **REPLY, outcome="accepted", loss=None),
            ("✓", "d  r2  2.0 KiB  n=9  in 3 s"),
        ),
        (
            happens("reply", **REPLY, outcome="accepted", shared={"entries": 1, "group": 182}),
            ("✓", "d  shared 1 entry of 182 samples, 2.0 KiB"),
        ),
        (
            happens("reply", **REPLY, outcome="accepted", shared={"entries": 4, "group": 30}),
            ("✓", "d  shared 4 entries of 30 samples or more, 2.0 KiB"),
        ),
        (
            happens("reply", **REPLY, outcome="accepted", shared={"entries": 2, "group": 1}),
            ("✓", "d  shared 2 entries of 1 sample or more, 2.0 KiB"),
        ),
        (
            happens("reply", **REPLY, outcome="rejected", reason="too large"),
            ("■", "d  rejected: too large"),
        ),
        (
            happens("reply", **REPLY, outcome="refused", reason=""),
            ("■", "d  refused: no reason given"),
        ),
        (happens("reply", **REPLY, outcome="failed", reason="x"), ("✗", "d  failed: x")),
        (happens("reply", **REPLY, outcome="late", reason="x"), ("◷", "d  late: x")),
        (
            happens("scored", round=3, seconds=61.0, accuracy=0.5, replies=4, late=1),
            ("✓", "round 3 done in 61 s: accuracy 0.500, 4 replies, 1 late"),
        ),
        (
            happens("scored", round=3, seconds=0.5, accuracy=None, replies=4, late=0),
            ("✓", "round 3 done in 500 ms: 4 replies"),
        ),
        (
            happens("scored", round=3, seconds=0.5, accuracy=None, replies=1, late=0),
            ("✓", "round 3 done in 500 ms: 1 reply"),
        ),
        (
            happens("scored", round=3, seconds=0.5, replies=3, late=1, summed=2),
            ("✓", "round 3 done in 500 ms: 3 replies, 2 of them in sums of sites, 1 late"),
        ),
        (happens("device", device="d", joined=True, samples=1), ("·", "d  joined, 1 sample")),
        (happens("run", run="r-1", status="running", reason=""), ("·", "r-1 running")),
        (happens("run", run="r-1", status="failed", reason="why"), ("·", "r-1 failed: why")),
        (happens("device", device="d", joined=True, samples=5), ("·", "d  joined, 5 samples")),
        (
            happens("roster", devices=["a", "b"], samples=[5, 6], joined=True),
            ("·", "2 devices joined, 11 samples"),
        ),
        (
            happens("roster", devices=["a"], samples=[5], joined=True),
            ("·", "1 device joined, 5 samples"),
        ),
        (happens("roster", devices=["a"], samples=[5]), None),
        (happens("device", device="d", state="lost"), ("✗", "d  lost")),
        (happens("device", device="d", state="paused", reason="hot"), ("◌", "d  paused: hot")),
        (happens("device", device="d", state="failed", reason="x"), ("✗", "d  failed: x")),
        (
            happens("alert", alert="no_round", about="r-1", text="no round", over=False),
            ("✗", "alert: r-1 no round"),
        ),
        (
            happens("alert", alert="lost_devices", about="", text="2 of 3 lost", over=True),
            ("·", "alert over: 2 of 3 lost"),
        ),
        (happens("note", text="hello", level="warning"), ("!", "hello")),
        (happens("note", text="hello"), ("·", "hello")),
        (happens("device", device="d", state="train", fraction=0.5), None),
        (happens("exchange", phase="merge"), None),
        (happens("round", run="r-1", round=1), None),
    ],
    ids=str,
)
def test_lines(made: Event, line: tuple[str, str] | None) -> None:
    described = describe(made)
    assert (None if described is None else (described.mark, described.text)) == line


# -- events -------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(made=events)
def test_a_line_of_the_log_is_the_event(made: Event) -> None:
    line = made.line()
    assert "\n" not in line
    assert Event.from_flat(_parsed(line)) == made


def test_a_value_that_is_no_json_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        happens("note", text="x", value=float("nan")).line()

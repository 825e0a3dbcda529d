"""What a snapshot says that an operator should look at, the worst first."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from edgefed.events.base.alert_events import AlertView
from edgefed.events.base.model import Event
from edgefed.events.base.snapshot import (
    DeviceRoundView,
    DeviceSnapshot,
    LineView,
    RunView,
    Snapshot,
    WaitingView,
)
from edgefed.events.state.attention import AttentionItem, attention, by_cause
from edgefed.events.state.awaited_devices import why_slow
from edgefed.events.state.fold import SnapshotBuilder
from edgefed.process.clock import timestamp

NOW = datetime(2026, 3, 4, 14, 2, 31, tzinfo=timezone.utc)


def ago(seconds: float) -> str:
    return timestamp(NOW - timedelta(seconds=seconds))


def collecting(**changes: object) -> RunView:
    values: dict[str, object] = {
        "run": "r-1", "status": "running", "round": 13, "exchange": "e-13", "question": "fit",
        "phase": "collect",
    }  # fmt: skip
    return RunView.model_validate({**values, **changes})


def fleet(*devices: DeviceSnapshot, run: RunView | None = None, **changes: object) -> Snapshot:
    return Snapshot.model_validate(
        {"devices": devices, "run": run or collecting(), "time": ago(0), **changes}
    )


def found(snapshot: Snapshot) -> list[tuple[str, str]]:
    return [(item.subject, item.text) for item in attention(snapshot, NOW)]


def device(name: str, **changes: object) -> DeviceSnapshot:
    return DeviceSnapshot.model_validate({"device": name, **changes})


def lost(name: str, seconds: float, **changes: object) -> DeviceSnapshot:
    return device(name, state="lost", state_since=ago(seconds), **changes)


def refused(name: str, outcome: str, reason: str, **changes: object) -> DeviceSnapshot:
    rounds = (DeviceRoundView.model_validate({"round": 12, "outcome": outcome}),)
    return device(name, refused_at=ago(9), refused_reason=reason, rounds=rounds, **changes)


def test_a_fleet_without_trouble_has_no_items() -> None:
    fine = device("a", state="train", temperature=79.9, battery=21.0)
    assert found(fleet(fine, device("b", state="late"))) == []


def test_each_kind_is_named_the_worst_first() -> None:
    shown = fleet(
        device("low", battery=20.0),
        device("still", state="paused", reason="by its owner", state_since=ago(30)),
        device("warm", temperature=80.0),
        device("doubted", standing="suspect", trust=0.4, trust_reason="norm 19.4 exceeds 10.0"),
        refused("far", "rejected", "norm 19.4 exceeds 10.0"),
        refused("broken", "failed", "out of memory"),
        lost("away", 600),
        lost("needed", 700, exchange="e-13", before_lost="train 83 %"),
        lines=(LineView(time=ago(60), mark="!", text="the broker is slow"),),
    )
    assert found(shown) == [
        ("needed", "lost, train 83 %; round 13 waits"),
        ("away", "lost"),
        ("broken", "failed: out of memory"),
        ("far", "rejected: norm 19.4 exceeds 10.0"),
        ("doubted", "suspect, trust 0.40: norm 19.4 exceeds 10.0"),
        ("warm", "80 °C"),
        ("still", "paused: by its owner"),
        ("low", "battery 20 %"),
        ("", "the broker is slow"),
    ]


def test_of_equals_the_newest_is_first() -> None:
    shown = fleet(lost("a", 600), lost("b", 5), lost("c", 90))
    assert [item.subject for item in attention(shown, NOW)] == ["b", "c", "a"]
    assert attention(shown, NOW)[0] == AttentionItem("b", "lost", "lost", ago(5), "alarm")


def test_a_lost_device_that_the_coordinator_names_is_waited_for() -> None:
    run = collecting(waiting=WaitingView(lost=("b",)))
    shown = fleet(lost("a", 5), lost("b", 600, exchange="e-12"), run=run)
    assert [item.subject for item in attention(shown, NOW)] == ["b", "a"]


def test_a_device_that_has_answered_is_not_waited_for() -> None:
    shown = fleet(lost("a", 5, exchange="e-13", replied="e-13"))
    assert found(shown) == [("a", "lost")]


def test_the_heat_of_a_lost_device_is_old() -> None:
    assert found(fleet(lost("a", 5, temperature=95.0, battery=1.0))) == [("a", "lost")]


def test_a_hot_device_that_is_paused_is_named_once() -> None:
    hot = device("a", state="paused", temperature=91.0, battery=5.0, reason="91 °C")
    assert found(fleet(hot)) == [("a", "91 °C, paused")]


def test_a_refusal_and_what_it_does_to_trust_are_one_item() -> None:
    bad = refused("a", "refused", "no number", standing="quarantined", trust=0.1)
    assert found(fleet(bad)) == [("a", "refused: no number; quarantined, trust 0.10")]


def test_a_quarantine_is_an_alarm() -> None:
    kept_out = device("a", standing="quarantined", trust=0.2, trust_reason="by an operator")
    only = attention(fleet(kept_out), NOW)[0]
    assert (only.text, only.severity) == ("quarantined, trust 0.20: by an operator", "alarm")


def test_a_finished_run_that_learned_nothing_is_an_item_until_the_next_one() -> None:
    """Its warning is a line of the last minutes too, and is not said twice."""
    reason = "the model learned nothing: it predicts 3 for all 360 test samples"
    run = collecting(status="finished", reason=reason, ended_at=ago(4000))
    line = LineView(time=ago(9), mark="!", text=f"{reason}; try: more rounds")
    assert found(fleet(run=run, lines=(line,))) == [("r-1", reason)]
    assert found(fleet(run=collecting(status="finished", reason="no better loss"))) == []


def test_warnings_about_strangers_are_one_item_and_others_stay() -> None:
    texts = (
        "strangers: m-7: it is not enrolled",
        "strangers: n-1: no message",
        "the broker is slow",
    )
    lines = [LineView(time=ago(60), mark="!", text=text) for text in texts]
    assert found(fleet(lines=lines)) == [("", texts[0]), ("", texts[2])]


def test_a_run_that_waits_says_for_what() -> None:
    there = (
        device("a", samples=5), device("b", samples=5, standing="quarantined"),
        lost("c", 5, samples=5), device("d", samples=9), device("e", samples=0),
    )  # fmt: skip
    waits = collecting(status="waiting", min_devices=8, started_at=ago(130))
    items = [item for item in attention(fleet(*there, run=waits), NOW) if item.kind == "waiting"]
    assert [(item.text, item.since) for item in items] == [("waits for devices: 2 of 8", ago(130))]
    full = collecting(reason="No space left on device. Waiting for space.")
    assert found(fleet(run=full)) == [("r-1", "No space left on device. Waiting for space.")]


@pytest.mark.parametrize("status", ["finished", "aborted"])
def test_a_run_that_has_ended_well_wants_no_attention(status: str) -> None:
    assert found(fleet(run=collecting(status=status, reason="all rounds done"))) == []


def test_a_failed_run_is_worst() -> None:
    failed = collecting(status="failed", reason="too few devices", phase="done")
    shown = fleet(lost("a", 5), run=failed)
    assert found(shown) == [("r-1", "failed: too few devices"), ("a", "lost")]


def test_warnings_stay_for_minutes_and_are_named_once() -> None:
    old = LineView(time=ago(301), mark="!", text="old")
    again = LineView(time=ago(10), mark="!", text="slow")
    odd = LineView(time="yesterday", mark="!", text="odd")
    note = LineView(time=ago(3), mark="·", text="going on")
    own = LineView(time=ago(3), mark="!", text="a  suspect, trust 0.40")
    lines = (note, own, again, again.model_copy(update={"time": ago(40)}), odd, old)
    shown = fleet(device("a"), lines=lines)
    assert found(shown) == [("", "slow")]
    assert attention(shown, NOW)[0].since == ago(10)


def test_of_warnings_that_differ_only_in_their_round_the_newest_counts() -> None:
    lines = [
        LineView(time=ago(number), mark="!", text=f"round {20 - number}: no test")
        for number in range(3)
    ]
    other = LineView(time=ago(9), mark="!", text="round 3: another")
    assert found(fleet(lines=(*lines, other))) == [
        ("", "round 20: no test"),
        ("", "round 3: another"),
    ]


def test_events_tell_what_a_lost_device_did() -> None:
    builder = SnapshotBuilder(Snapshot())

    def tell(**fields: object) -> DeviceSnapshot:
        builder.apply(Event(time=ago(0), kind="device", fields={"device": "a", **fields}))
        return builder.snapshot().devices[0]

    tell(state="train", fraction=0.83, reason="the device holds out no samples")
    gone = tell(state="lost", fraction=0.0)
    assert (gone.before_lost, gone.reason) == ("train 83 %", "")
    assert tell(state="lost", fraction=0.0).before_lost == "train 83 %"
    assert tell(state="idle").before_lost == ""


def test_alerts_that_are_not_over_are_items_and_a_failed_run_is_one_only_once() -> None:
    failed = AlertView(alert="run_failed", about="r-1", text="failed: disk", since=ago(9))
    slow = AlertView(alert="no_round", about="r-1", text="no round finished for 60 s", since=ago(3))
    lost = AlertView(alert="lost_devices", text="2 of 3 devices lost", since=ago(5))  # as it began
    run = collecting(status="failed", reason="disk", ended_at=ago(9))
    items = found(fleet(run=run, alerts=(failed, slow, lost)))
    assert items == [
        ("r-1", "failed: disk"),
        ("r-1", "no round finished for 60 s"),
        ("", "2 of 3 devices lost"),
    ]
    graves = {item.severity for item in attention(fleet(alerts=(slow, lost)), NOW)}
    assert graves == {"alarm"}


def test_the_numbers_of_alerts_are_those_of_now() -> None:
    slow = AlertView(
        alert="no_round", about="r-1", text="no round finished for 60 s", since=ago(30)
    )
    away = AlertView(alert="lost_devices", text="2 of 3 devices lost", since=ago(30))
    paused = lost("e", 9, paused_by="operator.ann")
    shown = fleet(
        *(lost(name, 40) for name in "abc"), device("d"), paused,
        run=collecting(round_at=ago(90)), alerts=(slow, away),
    )  # fmt: skip
    assert found(shown)[:2] == [
        ("", "3 of 4 devices lost"),
        ("r-1", "no round finished for 90 s"),
    ]


def test_a_round_that_waits_for_its_quorum_says_who_is_there_now() -> None:
    text = "round 13: 1 of 3 devices for the quorum are there; waiting"
    line = LineView(time=ago(20), mark="!", text=text)
    one, two, three = (device(name, samples=5) for name in "abc")
    there = [item.text for item in attention(fleet(one, two, lines=(line,)), NOW)]
    assert there == ["round 13: 2 of 3 devices for the quorum are there; waiting"]
    assert found(fleet(one, two, three, lines=(line,))) == []


ASKED = {"exchange": "e-13", "state_since": ago(24), "before_lost": "train 83 %"}
"""A device that the open exchange waits for, not heard of for 24 s."""

OPEN = {"opened_at": ago(24), "deadline": 60.0, "quorum": 2, "wanted": 3}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"accepted": 2}, "the round goes on without it in 36 s (deadline)"),
        ({"accepted": 1}, "the round needs 1 more answer in 36 s (deadline)"),
        ({"accepted": 0}, "the round needs 2 more answers in 36 s (deadline)"),
        ({"accepted": 2, "deadline": 20.0}, "the round goes on without it now (deadline)"),
        ({"accepted": 2, "deadline": 84.0}, "the round goes on without it in 60 s (deadline)"),
        ({"accepted": 2, "deadline": 0.0}, "round 13 waits"),
        ({"accepted": 2, "opened_at": "2026-03-04T14:02:07"},
         "the round goes on without it in 36 s (deadline)"),
    ],
)  # fmt: skip
def test_a_silent_device_says_for_how_long_and_what_happens_when(
    changes: dict[str, object], told: str
) -> None:
    run = collecting(**{**OPEN, **changes})
    shown = fleet(device("a", state="silent", **ASKED), device("b"), run=run)
    (item,) = attention(shown, NOW)
    assert (item.subject, item.kind, item.severity) == ("a", "silent", "alarm")
    assert item.text == f"silent for 24 s, train 83 %; {told}"
    assert why_slow(shown, NOW) == f"a silent for 24 s; {told}"
    (later,) = attention(shown, NOW + timedelta(seconds=5))
    assert later.text.startswith("silent for 29 s")


def test_a_lost_device_that_a_round_waits_for_says_when_its_grace_ends() -> None:
    until = timestamp(NOW + timedelta(seconds=8))
    run = collecting(**OPEN, accepted=2, waiting=WaitingView(lost=("a",), until=until))
    shown = fleet(device("a", state="lost", reason="connection broke", **ASKED), run=run)
    then = "the round goes on without it in 8 s (grace)"
    assert found(shown) == [("a", f"lost: connection broke, train 83 %; {then}")]
    assert why_slow(shown, NOW) == f"a lost for 24 s; {then}"


def test_a_silent_device_that_no_round_waits_for_holds_none_up() -> None:
    shown = fleet(device("a", state="silent", **{**ASKED, "replied": "e-13"}))
    assert found(shown) == [("a", "silent for 24 s, train 83 %")]
    assert why_slow(shown, NOW) == ""


def test_of_several_the_one_that_is_unheard_for_longest_is_named() -> None:
    devices = [
        device("a", state="silent", **{**ASKED, "state_since": ago(20)}),
        device("b", state="lost", **{**ASKED, "state_since": ago(40)}),
        device("c", state="silent", **ASKED),
    ]
    run = collecting(**OPEN, accepted=2)
    told = "b lost for 40 s and 2 more; the round goes on without them in 36 s (deadline)"
    assert why_slow(fleet(*devices, run=run), NOW) == told
    assert why_slow(fleet(*devices, run=collecting(phase="merge")), NOW) == ""


def test_data_that_a_device_at_work_refuses_are_an_item() -> None:
    reason = "refused its data: No image in photos.  [data.empty]"
    assert found(fleet(device("a", state="idle", reason=reason))) == [("a", reason)]


def test_a_quarantine_names_who_ordered_it() -> None:
    by_ann = {"quarantined_by": "operator.ann", "trust_reason": "ordered by operator.ann"}
    by_check = {"quarantined_by": "checks.norm_factor", "trust_reason": "the norm is 9"}
    shown = fleet(
        device("a", standing="quarantined", trust=1.0, trust_since=ago(1), **by_ann),
        device("b", standing="quarantined", trust=0.2, trust_since=ago(2), **by_check),
    )
    assert found(shown) == [
        ("a", "quarantined by operator.ann, trust 1.00"),
        ("b", "quarantined by checks.norm_factor, trust 0.20: the norm is 9"),
    ]


def test_events_tell_of_silence_and_of_its_end() -> None:
    builder = SnapshotBuilder(Snapshot())

    def tell(**fields: object) -> DeviceSnapshot:
        builder.apply(Event(time=ago(0), kind="device", fields={"device": "a", **fields}))
        return builder.snapshot().devices[0]

    tell(joined=True, state="idle", reason="")
    tell(state="train", fraction=0.83)
    quiet = tell(state="silent", state_since=ago(15))
    assert (quiet.state, quiet.state_since, quiet.before_lost) == ("silent", ago(15), "train 83 %")
    gone = tell(state="lost", fraction=0.0, reason="connection broke")
    assert (gone.before_lost, gone.reason) == ("train 83 %", "connection broke")
    tell(state="silent", state_since=ago(15))
    back = tell(state="train", fraction=0.9, heard=True)
    assert (back.state, back.before_lost, back.state_since) == ("train", "", ago(0))
    texts = [line.text for line in builder.snapshot().lines]
    assert texts[:2] == ["a  answers again", "a  silent: no answer to a ping"]


def test_failures_of_one_cause_are_one_group_and_the_largest_is_first() -> None:
    items = attention(
        fleet(
            refused("a", "failed", "no space: 17 MB are missing"),
            *(refused(f"b{n}", "failed", f"CUDA out of memory: {n}.5 GB") for n in range(3)),
            lost("c", 5),
            lost("d", 900, before_lost="train 83 %"),
        ),
        NOW,
    )
    groups = [[item.subject for item in group] for group in by_cause(items)]
    assert sorted(groups[0]) == ["c", "d"]
    assert sorted(groups[1]) == ["b0", "b1", "b2"]
    assert groups[2] == ["a"]
    assert by_cause(()) == []

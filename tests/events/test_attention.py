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
from edgefed.events.state.attention import AttentionItem, attention
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
    lost = AlertView(alert="lost_devices", text="2 of 3 devices lost", since=ago(5))
    run = collecting(status="failed", reason="disk", ended_at=ago(9))
    items = found(fleet(run=run, alerts=(failed, slow, lost)))
    assert items == [
        ("r-1", "failed: disk"),
        ("r-1", "no round finished for 60 s"),
        ("", "2 of 3 devices lost"),
    ]
    graves = {item.severity for item in attention(fleet(alerts=(slow, lost)), NOW)}
    assert graves == {"alarm"}

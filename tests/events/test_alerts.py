"""When an alert begins, when it is over, and that it is told once in between."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefed.config.fleet.alert_settings import AlertSettings
from edgefed.events.base.snapshot import DeviceSnapshot, RoundView, RunView, Snapshot
from edgefed.events.state.alerts import LOST_FOR, MOST_NAMED, Alert, AlertConditions

OFF = AlertSettings(lost_share=0)
LOST = AlertSettings(lost_share=0.3)
SLOW = AlertSettings(lost_share=0, round_seconds=60)


def fleet(lost: int, known: int) -> Snapshot:
    devices = [
        DeviceSnapshot(device=f"cam-{number:03d}", state="lost" if number < lost else "idle")
        for number in range(known)
    ]
    return Snapshot(fleet="plant-a", devices=tuple(devices))


def running(status: str = "running", rounds: int = 0, run: str = "r-1", **changes: Any) -> Snapshot:
    view = RunView.model_validate({"run": run, "status": status, **changes})
    return Snapshot(run=view, rounds=tuple(RoundView(round=n + 1) for n in range(rounds)))


def course(
    settings: AlertSettings, *looks: tuple[float, Snapshot], start: Snapshot | None = None
) -> list[tuple[str, bool, float]]:
    """Name, end and time of every alert in a course of snapshots."""
    conditions = AlertConditions(settings, start or Snapshot())
    return [
        (alert.name, alert.over, time)
        for time, snapshot in looks
        for alert in conditions.look(snapshot, time)
    ]


def begun(changes: Iterable[tuple[str, bool, float]]) -> list[str]:
    return [name for name, over, _ in changes if not over]


def test_a_failed_run_is_told_once_with_its_reason() -> None:
    conditions = AlertConditions(OFF, running())
    failed = running("failed", reason="quorum missed", ended_at="t1")
    assert conditions.look(running(), 0) == ()
    (alert,) = conditions.look(failed, 1)
    assert (alert.name, alert.run, alert.text) == ("run_failed", "r-1", "failed: quorum missed")
    assert conditions.look(failed, 2) == ()
    told = alert.to_json("plant-a", "now")
    assert told == {
        "alert": "run_failed", "fleet": "plant-a", "run": "r-1", "text": "failed: quorum missed",
        "time": "now",
    }  # fmt: skip


def test_a_run_that_is_resumed_and_fails_again_is_told_again() -> None:
    first, second = (running("failed", ended_at=stamp) for stamp in ("t1", "t2"))
    assert course(OFF, (0, first), (1, running()), (2, second)) == [
        ("run_failed", False, 0),
        ("run_failed", True, 1),
        ("run_failed", False, 2),
    ]
    assert begun(course(OFF, (0, first), (1, second))) == ["run_failed"] * 2


def test_a_run_that_had_failed_before_the_start_is_not_told() -> None:
    old = running("failed", ended_at="t1")
    assert course(OFF, (0, old), (9, old), start=old) == []
    again = running("failed", ended_at="t2")
    assert begun(course(OFF, (0, old), (9, again), start=old)) == ["run_failed"]


@pytest.mark.parametrize("status", ["finished", "aborted", "paused"])
def test_another_end_is_no_alert(status: str) -> None:
    assert course(AlertSettings(round_seconds=1), (0, running(status)), (99, running(status))) == []


@pytest.mark.parametrize(
    ("lost", "alerts"), [(2, []), (3, ["lost_devices"]), (10, ["lost_devices"])]
)
def test_lost_devices_are_told_from_their_share_on(lost: int, alerts: list[str]) -> None:
    assert begun(course(LOST, (0, fleet(lost, 10)), (LOST_FOR, fleet(lost, 10)))) == alerts


def paused(snapshot: Snapshot, *numbers: int) -> Snapshot:
    """Return a fleet of which an operator has paused some devices."""
    devices = [
        view.model_copy(update={"paused_by": "ann"}) if number in numbers else view
        for number, view in enumerate(snapshot.devices)
    ]
    return snapshot.model_copy(update={"devices": tuple(devices)})


@pytest.mark.parametrize(
    ("paused_ones", "text"),
    [
        ((0, 1), ""),  # 2 of 8
        ((0,), "3 of 9 devices lost"),
        ((8, 9), "4 of 8 devices lost"),
        (tuple(range(10)), ""),
    ],
)
def test_devices_that_an_operator_paused_do_not_count(
    paused_ones: tuple[int, ...], text: str
) -> None:
    conditions = AlertConditions(LOST, Snapshot())
    snapshot = paused(fleet(4, 10), *paused_ones)
    assert conditions.look(snapshot, 0) == ()
    told = conditions.look(snapshot, LOST_FOR)
    assert [alert.text for alert in told] == ([text] if text else [])
    assert not {f"cam-{n:03d}" for n in paused_ones} & {d for alert in told for d in alert.lost}


def test_devices_that_return_at_once_are_no_alert() -> None:
    there, gone = fleet(0, 10), fleet(9, 10)
    moment = LOST_FOR - 0.1
    assert course(LOST, (0, gone), (moment, gone), (moment + 1, there), (moment + 2, gone)) == []


def test_a_device_that_comes_and_goes_is_told_once() -> None:
    looks = [(LOST_FOR * step, fleet(5 - step % 2, 10)) for step in range(20)]
    half = AlertSettings(lost_share=0.5)
    assert course(half, (-LOST_FOR, fleet(5, 10)), *looks) == [("lost_devices", False, 0)]


def test_lost_devices_are_over_well_below_the_share() -> None:
    half = AlertSettings(lost_share=0.5)
    looks = [(0, fleet(5, 10)), (LOST_FOR, fleet(5, 10)), (9, fleet(3, 10)), (10, fleet(5, 10))]
    assert [change[:2] for change in course(half, *looks)] == [
        ("lost_devices", False),
        ("lost_devices", True),
    ]
    assert begun(course(half, *looks, (10 + LOST_FOR, fleet(5, 10)))) == ["lost_devices"] * 2


def test_lost_devices_are_named_up_to_a_number() -> None:
    conditions = AlertConditions(LOST, Snapshot())
    conditions.look(fleet(300, 400), 0)
    (alert,) = conditions.look(fleet(300, 400), LOST_FOR)
    told = alert.to_json("plant-a", "now")
    assert (told["text"], told["known"]) == ("300 of 400 devices lost", 400)
    assert told["lost"][:2] == ["cam-000", "cam-001"]
    assert len(told["lost"]) == MOST_NAMED


def test_no_round_in_time_is_told_until_one_finishes() -> None:
    looks = [(0, running(rounds=1)), (59, running(rounds=1)), (60, running(rounds=1))]
    after = [(61, running(rounds=1)), (62, running(rounds=2)), (121, running(rounds=2))]
    assert course(SLOW, *looks, *after) == [("no_round", False, 60), ("no_round", True, 62)]


def test_a_pause_is_no_time_without_a_round() -> None:
    looks = [(0, running()), (50, running("paused")), (500, running("paused")), (501, running())]
    assert course(SLOW, *looks, (560, running())) == []
    assert begun(course(SLOW, *looks, (561, running()))) == ["no_round"]


def reopened(settings: AlertSettings, *looks: tuple[float, Snapshot]) -> AlertConditions:
    """The conditions of a process that began when another one, with these looks, was killed."""
    conditions = AlertConditions(settings, Snapshot())
    told: dict[str, Alert] = {}
    for time, snapshot in looks:
        for alert in conditions.look(snapshot, time):
            told[alert.name] = alert
    start = looks[-1][1].model_copy(update={"devices": ()})
    return AlertConditions(settings, start, [a for a in told.values() if not a.over])


def seen(conditions: AlertConditions, *looks: tuple[float, Snapshot]) -> list[tuple[str, bool]]:
    return [
        (alert.name, alert.over) for time, snap in looks for alert in conditions.look(snap, time)
    ]


def test_lost_devices_are_not_told_again_after_a_restart() -> None:
    gone = fleet(5, 10)
    again = reopened(LOST, (0, gone), (LOST_FOR, gone))
    assert seen(again, (0, fleet(0, 0)), (60, fleet(0, 0)), (61, fleet(0, 2)), (62, gone)) == []
    assert seen(again, (61 + LOST_FOR, gone), (99, gone)) == []
    assert seen(again, (100, fleet(0, 10))) == [("lost_devices", True)]


def test_devices_that_returned_during_a_restart_end_the_alert() -> None:
    gone, there = fleet(5, 10), fleet(0, 10)
    again = reopened(LOST, (0, gone), (LOST_FOR, gone))
    assert seen(again, (0, there), (LOST_FOR - 0.1, there)) == []
    assert seen(again, (LOST_FOR, there), (LOST_FOR + 1, there)) == [("lost_devices", True)]
    assert seen(again, (100, gone), (100 + LOST_FOR, gone)) == [("lost_devices", False)]


def test_a_run_without_a_round_is_not_told_again_after_a_restart() -> None:
    waits = running(rounds=1)
    again = reopened(SLOW, (0, waits), (60, waits))
    assert seen(again, (0, waits), (61, waits), (500, waits)) == []
    assert seen(again, (501, running(rounds=2))) == [("no_round", True)]


def test_a_failed_run_is_over_after_a_restart_once_it_is_resumed() -> None:
    failed = running("failed", ended_at="t1")
    start = running("failed", ended_at="t2")  # the store's time of the same failure
    (told,) = AlertConditions(OFF, Snapshot()).look(failed, 0)
    again = AlertConditions(OFF, start, [told])
    assert seen(again, (0, start), (9, start)) == []
    later = running("failed", ended_at="t3")
    assert seen(again, (10, running()), (11, later)) == [
        ("run_failed", True),
        ("run_failed", False),
    ]
    other = AlertConditions(OFF, running("failed", run="r-2", ended_at="t9"), [told])
    assert seen(other, (0, running("failed", run="r-2", ended_at="t9"))) == [("run_failed", True)]


def test_nothing_is_told_that_is_switched_off() -> None:
    assert (
        course(OFF, (0, fleet(9, 9)), (99, fleet(9, 9)), (99, running()), (9999, running())) == []
    )


snapshots = st.one_of(
    st.builds(
        lambda known, lost: fleet(min(known, lost), known), st.integers(0, 9), st.integers(0, 9)
    ),
    st.builds(
        running,
        st.sampled_from(["waiting", "running", "pausing", "paused", "finishing", "failed"]),
        st.integers(0, 3),
        st.sampled_from(["r-1", "r-2"]),
        ended_at=st.sampled_from(["t1", "t2"]),
    ),
)
courses = st.lists(st.tuples(st.floats(0, 50), snapshots), max_size=30)


@given(steps=courses, share=st.floats(0, 1), limit=st.floats(0, 100))
def test_an_alert_begins_and_ends_in_turn_and_the_open_ones_are_wrong_now(
    steps: list[tuple[float, Snapshot]], share: float, limit: float
) -> None:
    settings = AlertSettings(lost_share=share, round_seconds=limit)
    conditions = AlertConditions(settings, Snapshot())
    open_ones: dict[str, Alert] = {}
    time = 0.0
    for passed, snapshot in steps:
        time += passed
        for alert in conditions.look(snapshot, time):
            assert alert.over == (alert.name in open_ones)
            if alert.over:
                del open_ones[alert.name]
            else:
                open_ones[alert.name] = alert
        assert conditions.look(snapshot, time) == (), "what was told is not told again"
        status = snapshot.run.status if snapshot.run else ""
        assert ("run_failed" in open_ones) == (status == "failed")
        assert "lost_devices" not in open_ones or any(d.state == "lost" for d in snapshot.devices)
        assert "no_round" not in open_ones or status in ("waiting", "running", "finishing")

"""The stages of a rollout: when the next begins, when it stops, and in which order it asks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgefed.coordinator.rollouts.staging import Stages, Verdict, drawn_order, next_step

NAMES = tuple(f"cam-{number:02d}" for number in range(20))
PLAN = Stages(NAMES, (0.05, 0.25, 1.0), 0.1)


def answered(stages: Stages, verdict: Verdict, *devices: str) -> Stages:
    for device in devices:
        stages = stages.with_verdict(device, verdict)
    return stages


def test_a_stage_begins_when_the_one_before_has_answered() -> None:
    assert PLAN.asked == NAMES[:1]
    assert next_step(PLAN, NAMES) is PLAN
    second = next_step(answered(PLAN, "taken", NAMES[0]), NAMES)
    assert (second.stage, second.asked) == (1, NAMES[:5])
    assert second.waited(NAMES) == [*NAMES[1:5]]
    assert next_step(answered(second, "taken", *NAMES[1:4]), NAMES).stage == 1
    third = next_step(answered(second, "taken", *NAMES[1:5]), NAMES)
    assert (third.stage, third.status, len(third.asked)) == (2, "active", 20)
    done = next_step(answered(third, "taken", *NAMES), NAMES)
    assert done.status == "finished"
    assert next_step(answered(done, "refused", *NAMES), NAMES).status == "finished", "it is over"


def test_a_share_that_is_a_whole_number_of_devices_asks_no_more() -> None:
    names = tuple(map(str, range(25)))
    assert 7 / 25 * 25 > 7
    assert Stages(names, (7 / 25, 1.0), 0.1).asked == names[:7]


def test_it_stops_above_a_share_of_refusals() -> None:
    assert next_step(answered(PLAN, "refused", NAMES[0]), NAMES).status == "stopped"
    last = Stages(NAMES, (1.0,), 0.1)
    two = answered(last, "refused", *NAMES[:2])
    assert next_step(two, NAMES).status == "active", "2 of 20 are not more than 10 %"
    assert next_step(answered(two, "refused", NAMES[2]), NAMES).status == "stopped"
    assert next_step(two, NAMES[:12]).status == "stopped", "of those who can answer, 2 of 12"
    assert next_step(answered(two, "skipped", NAMES[2]), NAMES).status == "stopped", "2 of 19"
    assert next_step(Stages(NAMES, (1.0,), 0.0), NAMES).status == "active"


def test_devices_that_are_away_hold_nobody_up_but_half_must_have_answered() -> None:
    second = next_step(answered(PLAN, "taken", NAMES[0]), NAMES)
    assert next_step(second, NAMES[:1]).stage == 1, "1 of 5 has answered"
    most = answered(second, "taken", *NAMES[:3])
    assert next_step(most, NAMES[:3]).stage == 2
    assert next_step(most, NAMES[:4]).stage == 1, "a connected device is waited for"
    assert next_step(PLAN, ()).stage == 0
    skipped = answered(PLAN, "skipped", *NAMES)
    assert next_step(skipped, NAMES).status == "finished", "owners who decline hold nobody up"


@given(st.lists(st.sampled_from(["taken", "refused", "skipped"]), max_size=20), st.booleans())
def test_a_rollout_goes_on_or_has_ended(verdicts: list[Verdict], all_online: bool) -> None:
    stages = PLAN
    for device, verdict in zip(NAMES, verdicts, strict=False):
        stages = next_step(stages.with_verdict(device, verdict), NAMES if all_online else ())
    again = next_step(stages, NAMES if all_online else ())
    assert again is stages, "a step is taken at once"
    refused, taken = stages.count("refused"), stages.count("taken")
    if stages.status == "finished":
        assert 2 * sum(device in stages.verdicts for device in NAMES) >= len(NAMES)
    if stages.status == "stopped":
        assert refused > 0.1 * (refused + taken)


def test_the_order_is_drawn_from_the_seed_and_a_late_device_is_the_last() -> None:
    drawn = drawn_order("m-1", NAMES)
    assert drawn == drawn_order("m-1", reversed(NAMES)) != drawn_order("m-2", NAMES)
    assert sorted(drawn) == [*NAMES]
    late = PLAN.with_device("new")
    assert (late.order[-1], late.with_device("new")) == ("new", late)

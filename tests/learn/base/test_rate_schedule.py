"""Rate schedules: the factors of torch's schedulers, their bounds, and the warm-up."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import lr_scheduler

from edgefed.config.recipes.training_section import ScheduleName
from edgefed.learn.base.rate_schedule import RateSchedule
from edgefed.learn.base.types import Schedule

SHARES = st.floats(0, 1)
SCHEDULES = st.builds(
    RateSchedule,
    st.sampled_from(["constant", "cosine", "step", "linear"]),
    st.floats(0, 1, exclude_max=True),
    SHARES,
    st.integers(1, 50),
    st.floats(1e-3, 1),
)


def by_torch(schedule: RateSchedule, warm: int, length: int) -> list[float]:
    """Return the factors of torch's own schedulers, one after the other."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    rest = length - warm
    main: lr_scheduler.LRScheduler
    if schedule.name == "cosine":
        main = lr_scheduler.CosineAnnealingLR(optimizer, rest, eta_min=schedule.final_rate)
    elif schedule.name == "linear":
        main = lr_scheduler.LinearLR(optimizer, 1.0, schedule.final_rate, total_iters=rest)
    else:
        gamma = schedule.step_factor if schedule.name == "step" else 1.0
        main = lr_scheduler.StepLR(optimizer, schedule.step_every, gamma)
    if warm:
        first = lr_scheduler.LinearLR(optimizer, 1 / (warm + 1), 1.0, total_iters=warm)
        main = lr_scheduler.SequentialLR(optimizer, [first, main], [warm])
    found = []
    for _ in range(length):
        found.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        main.step()
    return found


@pytest.mark.parametrize("name", ["constant", "cosine", "linear", "step"])
@pytest.mark.parametrize(("warm_up", "warm"), [(0.0, 0), (0.25, 5), (0.95, 19)])
def test_the_factors_are_those_of_torchs_schedulers(
    name: ScheduleName, warm_up: float, warm: int
) -> None:
    final = 0.0 if name == "step" else 0.1
    schedule = RateSchedule(name, warm_up, final, step_every=3, step_factor=0.5)
    ours = [schedule.factor(place, 20) for place in range(20)]
    assert ours == pytest.approx(by_torch(schedule, warm, 20), rel=1e-12)


@given(SCHEDULES, st.integers(1, 200))
def test_factors_rise_to_one_in_the_warm_up_and_then_stay_between_the_final_rate_and_one(
    schedule: RateSchedule, length: int
) -> None:
    warm = min(round(schedule.warm_up * length), length - 1)
    factors = [schedule.factor(place, length) for place in range(length)]
    rising, after = factors[:warm], factors[warm:]
    assert all(0 < one < other for one, other in zip(rising, factors[1:], strict=False))
    assert after[0] == 1
    low = 1.0 if schedule.name == "constant" else schedule.final_rate
    assert all(low - 1e-12 <= each <= 1 for each in after)
    assert all(one >= other for one, other in pairwise(after))


def test_a_step_schedule_does_not_fall_below_the_final_rate() -> None:
    schedule = RateSchedule("step", final_rate=0.2, step_every=2, step_factor=0.5)
    assert [schedule.factor(place, 8) for place in range(8)] == [
        *(1, 1, 0.5, 0.5),
        *(0.25, 0.25, 0.2, 0.2),
    ]


def test_a_constant_rate_is_the_learning_rate_in_the_same_bits() -> None:
    assert Schedule(learning_rate=0.1).rate(7, 10) == 0.1
    warming = Schedule(learning_rate=0.1, rates=RateSchedule(warm_up=0.5))
    assert [warming.rate(step, 4) for step in range(4)] == pytest.approx(
        [0.1 / 3, 0.2 / 3, 0.1, 0.1]
    )

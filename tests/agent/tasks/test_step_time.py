"""The time of a task's steps: without the wait for the first one, and without what follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import pytest

from device_agent.tasks.training_child import StepTime, TaskTraining
from device_agent.tasks.training_messages import Progressed, TrainingDone
from edgefed.worker.outcomes import Outcome
from tests.coordinator.light_devices import HandClock


@pytest.mark.parametrize(
    ("noted", "seconds"),
    [
        # The first of four steps waits 10 s; three steps take 6 s, so four take 8.
        (((0.25, 10.0), (0.5, 12.0), (1.0, 16.0)), 8.0),
        # A GPU is told its steps at once and is done with them later.
        (((0.5, 10.0), (1.0, 10.0), (1.0, 14.0)), 8.0),
        # One step, or none: all that is known is the whole.
        (((1.0, 10.0), (1.0, 10.0)), 20.0),
        ((), 20.0),
        # Never longer than the whole: half of the steps took 18 s of it.
        (((0.5, 2.0), (1.0, 20.0)), 20.0),
    ],
)
def test_it_leaves_out_the_wait_for_the_first_step(
    noted: tuple[tuple[float, float], ...], seconds: float
) -> None:
    clock = HandClock()
    steps, began = StepTime(clock), clock.seconds
    for fraction, after in noted:
        steps.note(fraction, began + after)
    clock.seconds = began + 20.0  # the end of the answer's encoding
    assert steps.seconds() == seconds


def test_the_outcome_of_a_task_has_it() -> None:
    clock, reported = HandClock(), list[Progressed | TrainingDone]()

    def work(
        task: Any,
        read: Any,
        private: Any,
        progress: Callable[[float], None],
        *rest: Any,
        **more: Any,
    ) -> Outcome:
        for fraction, seconds in ((0.5, 10.0), (1.0, 2.0)):
            clock.seconds += seconds
            progress(fraction)
        clock.seconds += 30.0
        return Outcome(status="ok")

    training = TaskTraining(
        MagicMock(work=work), MagicMock(), clock, reported.append, lambda: False
    )
    training.begin(MagicMock())
    done = reported[-1]
    assert isinstance(done, TrainingDone)
    assert done.outcome.seconds == 4.0

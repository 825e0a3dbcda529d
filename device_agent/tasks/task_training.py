"""Do the task of an order, with the arrays that it names, and report how far it is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from device_agent.tasks.stored_arrays import StoredArrays, TrainingOrder
from device_agent.tasks.training_messages import Progressed, TrainingDone
from edgefed.errors import EdgeFedError
from edgefed.learn.training.trainer import Stopped
from edgefed.process.clock import Clock
from edgefed.process.memory import LARGE, return_freed
from edgefed.worker.outcomes import Outcome
from edgefed.worker.worker import Worker

REPORT_EVERY = 0.5
"""Seconds between two reports of progress."""


class TaskTraining:
    """Does one task after another.

    Args:
        worker: does the work.
        stored: the arrays that orders name.
        clock: for how often progress is reported.
        report: takes ``Progressed`` and ``TrainingDone``.
        stop: called before each step; True gives the task up, and no outcome follows.
    """

    def __init__(
        self,
        worker: Worker,
        stored: StoredArrays,
        clock: Clock,
        report: Callable[[Progressed | TrainingDone], None],
        stop: Callable[[], bool],
    ) -> None:
        self._worker = worker
        self._stored = stored
        self._clock = clock
        self._report = report
        self._stop = stop

    def begin(self, order: TrainingOrder) -> None:
        """Do a task; nothing refers to its outcome here while the next one is awaited."""
        if sum(ref.size for ref in order.task.blobs.values()) >= LARGE:
            return_freed()  # what the task before has left
        with suppress(Stopped):
            steps = StepTime(self._clock)
            outcome = self._outcome(order, steps)
            self._report(TrainingDone(order.task, replace(outcome, seconds=steps.seconds())))

    def _outcome(self, order: TrainingOrder, steps: StepTime) -> Outcome:
        stored = self._stored
        try:
            return self._worker.work(
                order.task,
                lambda role: stored.arrays(order.task.blobs[role].digest),
                stored.private(order.private),
                self._reporter(order.task.exchange, steps),
                self._stop,
                persistent=stored.persistent(order),
                read_relay=stored.read,
            )
        except EdgeFedError as error:  # its stored state cannot be read
            return Outcome(status="failed", reason=error.as_line())

    def _reporter(self, exchange: str, steps: StepTime) -> Callable[[float], None]:
        reported = self._clock.monotonic()

        def report(fraction: float) -> None:
            nonlocal reported
            now = self._clock.monotonic()
            steps.note(fraction, now)
            if now - reported >= REPORT_EVERY:
                reported = now
                self._report(Progressed(exchange, fraction))

        return report


class StepTime:
    """The time of a task's steps, from the end of its first one on.

    The first step also waits for the model, the samples and the processor to be ready, which takes
    as long for few samples as for many.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._first: tuple[float, float] | None = None
        self._last = (0.0, self._began)

    def note(self, fraction: float, now: float) -> None:
        """Note when a share of the steps was done."""
        self._last = (fraction, now)
        self._first = self._first or self._last

    def seconds(self) -> float:
        """Return the seconds of all steps; those of the whole work if it has one step or none."""
        whole = self._clock.monotonic() - self._began
        done, ended = self._last
        first, began = self._first or self._last
        return min(whole, (ended - began) * done / (done - first)) if done > first else whole

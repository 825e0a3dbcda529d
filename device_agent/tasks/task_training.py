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
from edgefed.worker.replies import Outcome
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
            begun = self._clock.monotonic()
            outcome = self._outcome(order)
            seconds = self._clock.monotonic() - begun
            self._report(TrainingDone(order.task, replace(outcome, seconds=seconds)))

    def _outcome(self, order: TrainingOrder) -> Outcome:
        stored = self._stored
        try:
            return self._worker.work(
                order.task,
                lambda role: stored.arrays(order.task.blobs[role].digest),
                stored.private(order.private),
                self._reporter(order.task.exchange),
                self._stop,
                persistent=stored.persistent(order),
                read_relay=stored.read,
            )
        except EdgeFedError as error:  # its stored state cannot be read
            return Outcome(status="failed", reason=error.as_line())

    def _reporter(self, exchange: str) -> Callable[[float], None]:
        reported = self._clock.monotonic()

        def report(fraction: float) -> None:
            nonlocal reported
            now = self._clock.monotonic()
            if now - reported >= REPORT_EVERY:
                reported = now
                self._report(Progressed(exchange, fraction))

        return report

"""The thread that trains, so that the training process can be told to give a task up."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

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


@dataclass(frozen=True)
class _Begun:
    order: TrainingOrder
    stop: threading.Event = field(default_factory=threading.Event)


class TrainingThread:
    """Does one task after another.

    Args:
        worker: does the work.
        stored: the arrays that orders name.
        clock: for how often progress is reported.
        report: takes ``Progressed`` and ``TrainingDone``, on this object's thread.
        beat: called before each step.
    """

    def __init__(
        self,
        worker: Worker,
        stored: StoredArrays,
        clock: Clock,
        report: Callable[[Progressed | TrainingDone], None],
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._worker = worker
        self._stored = stored
        self._clock = clock
        self._report = report
        self._beat = beat
        self._orders: queue.SimpleQueue[_Begun | None] = queue.SimpleQueue()
        self._current: _Begun | None = None
        self._thread = threading.Thread(target=self._run, name="training", daemon=True)
        self._thread.start()

    def begin(self, order: TrainingOrder) -> None:
        """Begin a task; the previous one is given up."""
        self.give_up()
        self._current = _Begun(order)
        self._orders.put(self._current)

    def give_up(self) -> None:
        """Stop working; no outcome follows."""
        if self._current is not None:
            self._current.stop.set()
            self._current = None

    def stop(self) -> None:
        """End the thread."""
        self.give_up()
        self._orders.put(None)
        self._thread.join(timeout=10)

    def _run(self) -> None:
        while (begun := self._orders.get()) is not None:
            if not begun.stop.is_set():
                with suppress(Stopped):
                    self._work(begun)

    def _work(self, begun: _Begun) -> None:
        """Do a task; nothing refers to its outcome here while the next one is awaited."""
        if sum(ref.size for ref in begun.order.task.blobs.values()) >= LARGE:
            return_freed()  # what the task before has left
        try:
            outcome = self._outcome(begun)
        except EdgeFedError as error:
            outcome = Outcome(status="failed", reason=error.as_line())
        if not begun.stop.is_set():
            self._report(TrainingDone(begun.order.task, outcome))

    def _outcome(self, begun: _Begun) -> Outcome:
        order, stored = begun.order, self._stored
        return self._worker.work(
            order.task,
            lambda role: stored.arrays(order.task.blobs[role].digest),
            stored.private(order.private),
            self._reporter(begun),
            lambda: self._beats_and_stops(begun),
            persistent=stored.persistent(order),
            read_relay=stored.read,
        )

    def _beats_and_stops(self, begun: _Begun) -> bool:
        self._beat()
        return begun.stop.is_set()

    def _reporter(self, begun: _Begun) -> Callable[[float], None]:
        reported = self._clock.monotonic()

        def report(fraction: float) -> None:
            nonlocal reported
            now = self._clock.monotonic()
            if now - reported >= REPORT_EVERY:
                reported = now
                self._report(Progressed(begun.order.task.exchange, fraction))

        return report

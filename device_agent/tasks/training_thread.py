"""The thread that trains, so that training never blocks the main thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from edgefed.data.base.types import DeviceData
from edgefed.learn.base.types import Tensors
from edgefed.learn.training.trainer import Stopped
from edgefed.process.clock import Clock
from edgefed.wire.messages import Task
from edgefed.worker.persistent_state import PersistentState
from edgefed.worker.replies import Outcome
from edgefed.worker.task_inputs import TaskInputs
from edgefed.worker.worker import Worker

REPORT_EVERY = 0.5
"""Seconds between two reports of progress."""


@dataclass(frozen=True)
class Progressed:
    """A share of a task's work is done."""

    exchange: str
    fraction: float


@dataclass(frozen=True)
class TrainingDone:
    """The outcome of a task's work."""

    task: Task
    outcome: Outcome


@dataclass(frozen=True)
class _Order:
    inputs: TaskInputs
    private: Mapping[str, Tensors]
    persistent: PersistentState
    stop: threading.Event


class TrainingThread:
    """Does one task after another.

    Args:
        worker: does the work.
        clock: for how often progress is reported.
        report: takes ``Progressed`` and ``TrainingDone``, on this object's thread.
    """

    def __init__(
        self, worker: Worker, clock: Clock, report: Callable[[Progressed | TrainingDone], None]
    ) -> None:
        self._worker = worker
        self._clock = clock
        self._report = report
        self._orders: queue.SimpleQueue[_Order | DeviceData | None] = queue.SimpleQueue()
        self._current: _Order | None = None
        self._thread = threading.Thread(target=self._run, name="training", daemon=True)
        self._thread.start()

    def begin(
        self,
        inputs: TaskInputs,
        private: Mapping[str, Tensors],
        persistent: PersistentState,
    ) -> None:
        """Begin a task; the previous one is given up."""
        self.give_up()
        order = _Order(inputs, private, persistent, threading.Event())
        self._current = order
        self._orders.put(order)

    def renew(self, data: DeviceData) -> None:
        """Have the tasks that are begun from now on use other samples."""
        self._orders.put(data)

    def work_on(self, exchange: str) -> bool:
        """Whether an exchange's task was begun; its outcome is here or will follow."""
        return self._current is not None and self._current.inputs.task.exchange == exchange

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
        while (order := self._orders.get()) is not None:
            if isinstance(order, DeviceData):
                self._worker.renew(order)
                continue
            if not order.stop.is_set():
                with suppress(Stopped):
                    self._work(order)

    def _work(self, order: _Order) -> None:
        """Do a task; nothing refers to its outcome here while the next one is awaited."""
        outcome = self._worker.work(
            order.inputs.task,
            order.inputs.read,
            order.private,
            self._reporter(order),
            order.stop.is_set,
            persistent=order.persistent,
            read_relay=order.inputs.read_relay,
        )
        if not order.stop.is_set():
            self._report(TrainingDone(order.inputs.task, outcome))

    def _reporter(self, order: _Order) -> Callable[[float], None]:
        reported = self._clock.monotonic()

        def report(fraction: float) -> None:
            nonlocal reported
            now = self._clock.monotonic()
            if now - reported >= REPORT_EVERY:
                reported = now
                self._report(Progressed(order.inputs.task.exchange, fraction))

        return report

"""Do the task of an order, with the arrays in the device's folder that it names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from device_agent.tasks.training_messages import Progressed, TrainingDone, TrainingOrder
from edgefed.errors import EdgeFedError, WireError
from edgefed.learn.training.trainer import Stopped
from edgefed.process.clock import Clock
from edgefed.process.memory import LARGE, return_freed
from edgefed.wire.tensors import packed_names, unpack
from edgefed.worker.outcomes import Outcome, PersistentState
from edgefed.worker.worker import Worker

if TYPE_CHECKING:
    from edgefed.learn.base.types import Tensors

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


class StoredArrays:
    """Reads blobs that were checked before; groups of state across runs stay in memory.

    Args:
        folder: of the blobs, each in a file that its digest names.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._unpacked: dict[str, Tensors] = {}

    def read(self, digest: str) -> bytes:
        """Return the bytes of a blob.

        Raises:
            WireError: ``wire.blob``: it is not here.
        """
        try:
            return (self._folder / digest).read_bytes()
        except OSError as error:
            raise WireError(f"Blob {digest[:12]} is not in the cache.", code="wire.blob") from error

    def arrays(self, digest: str) -> Tensors:
        """Return the arrays of a blob.

        Raises:
            WireError: it is not here, or holds no arrays.
        """
        data = self.read(digest)
        return unpack(data, None, max_bytes=len(data))

    def private(self, digest: str) -> Mapping[str, Tensors]:
        """Return groups of private state, each read when it is used; empty for no digest."""
        return _StoredGroups(lambda: self.read(digest)) if digest else {}

    def persistent(self, order: TrainingOrder) -> PersistentState:
        """Return the state across runs that an order names."""
        before, self._unpacked = self._unpacked, {}
        for digest in order.device_state.values():
            self._unpacked[digest] = before[digest] if digest in before else self.arrays(digest)
        groups = {name: self._unpacked[digest] for name, digest in order.device_state.items()}
        return PersistentState(groups, order.ledger)


class _StoredGroups(Mapping[str, "Tensors"]):
    """Groups of arrays in a blob. Each is read anew when it is used, and not kept."""

    def __init__(self, read: Callable[[], bytes]) -> None:
        self._read = read
        self._groups = dict.fromkeys(name.partition("|")[0] for name in packed_names(read()))

    def __getitem__(self, group: str) -> Tensors:
        if group not in self._groups:
            raise KeyError(group)
        data, prefix = self._read(), f"{group}|"
        arrays = unpack(
            data, None, max_bytes=len(data), wanted=lambda name: name.startswith(prefix)
        )
        return {name.removeprefix(prefix): array for name, array in arrays.items()}

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)

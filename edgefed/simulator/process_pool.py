"""Warm worker processes for virtual devices: forked once, one thread each, fed through a pipe.

The workers inherit all shards at the fork without copying them. The payloads of an exchange are
written once into shared memory. Orders and outcomes pass through the worker's pipe in the encoding
of the wire. A free worker gets the next order, which balances uneven devices; the outcome of an
order has the same bits on any worker.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

import msgpack

from edgefed.data.base.types import Shard
from edgefed.errors import EdgeFedError
from edgefed.learn.base.processors import set_threads
from edgefed.learn.base.types import Tensors
from edgefed.learn.training.trainer import Stopped
from edgefed.learn.training.warm_trainers import UNBOUNDED
from edgefed.process.clock import SystemClock
from edgefed.simulator.executors import WorkOrder, kept_workers, perform
from edgefed.simulator.serialization import order_bytes, outcome_bytes, read_order, read_outcome
from edgefed.worker.outcomes import Outcome
from edgefed.worker.private_randomness import PrivateRandomness, from_operating_system
from edgefed.worker.trainer_cache import TrainerCache

POLL = 0.5
"""Seconds between two questions whether to stop."""

SPARE = 2
"""Room for blobs, as a multiple of those of the first exchange."""

Places = Mapping[str, tuple[int, int]]
"""The place of a blob in the shared memory: start and length, by digest."""


@dataclass(eq=False)
class _WorkerProcess:
    """A worker process, its pipe, and the order it works on."""

    process: BaseProcess
    pipe: Connection
    order: WorkOrder | None = None


class ProcessPool:
    """Does orders in worker processes.

    Args:
        shards: the devices' data.
        workers: how many processes.
        private_randomness: gives the generator of a task's privacy noise.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        workers: int,
        private_randomness: PrivateRandomness = from_operating_system,
    ) -> None:
        self._shards = shards
        self._private_randomness = private_randomness
        self._count = workers
        self._processes: list[_WorkerProcess] = []
        self._memory: mmap.mmap | None = None

    def outcomes(
        self,
        orders: Sequence[WorkOrder],
        read: Callable[[str], bytes],
        stop: Callable[[], bool],
    ) -> Iterator[tuple[WorkOrder, Outcome]]:
        """Distribute the orders and yield outcomes as they arrive.

        Raises:
            EdgeFedError: a worker and its successor died on the same order.
        """
        places = self._share(orders, read)
        waiting, lost = deque(orders), set[int]()
        for worker in self._processes:
            self._next(worker, waiting, places)
        try:
            while busy := [worker for worker in self._processes if worker.order is not None]:
                if stop():
                    return
                for worker in _ready(busy):
                    order = worker.order
                    assert order is not None
                    try:
                        outcome = read_outcome(worker.pipe.recv_bytes())
                    # The pipe of a worker that died ends
                    except (EOFError, OSError):
                        fresh = self._replace(worker, order, lost)
                        waiting.appendleft(order)
                        self._next(fresh, waiting, places)
                        continue
                    self._next(worker, waiting, places)
                    yield order, outcome
        finally:
            # Orders of an exchange that was cut short end with their workers
            if any(worker.order is not None for worker in self._processes):
                self.close()

    def close(self) -> None:
        """End the workers; the next orders start new ones."""
        for worker in self._processes:
            worker.pipe.close()
            worker.process.terminate()
        while self._processes:
            self._processes[-1].process.join()
            self._processes.pop().process.close()
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _share(self, orders: Sequence[WorkOrder], read: Callable[[str], bytes]) -> Places:
        """Write every blob that the orders name into the shared memory, once."""
        sizes = {name: size for order in orders for name, size in order.task.needed.items()}
        needed = sum(sizes.values())
        # Workers inherit the memory when they are forked, so a larger one needs new workers
        if self._memory is None or needed > len(self._memory):
            self.close()
            self._memory = mmap.mmap(-1, max(1 << 20, SPARE * needed))
            self._fill()
        places, start = {}, 0
        for digest, size in sizes.items():
            self._memory[start : start + size] = read(digest)
            places[digest] = (start, size)
            start += size
        return places

    def _fill(self) -> None:
        """Start workers until their number is reached.

        Raises:
            EdgeFedError: the system gives no more processes, or no memory for them.
        """
        try:
            while len(self._processes) < self._count:
                with undisturbed():
                    self._processes.append(self._start())
        except OSError as error:
            self.close()
            raise EdgeFedError(
                f"Worker processes cannot be started: {error.strerror or error}.",
                code="simulation.worker",
                hint="try fewer with --set simulation.workers=1",
            ) from error

    def _start(self) -> _WorkerProcess:
        assert self._memory is not None
        context = get_context("fork")
        ours, theirs = context.Pipe()
        # A worker that held another's pipe open would keep it from noticing that we are gone.
        strange = [ours, *(worker.pipe for worker in self._processes)]
        workers = (self._shards, self._private_randomness)
        given = (theirs, strange, *workers, self._memory, os.getpid())
        process = context.Process(target=_work, args=given, daemon=True)
        try:
            process.start()
        except OSError:
            ours.close()
            raise
        finally:
            # The child has its own end; with ours open, its death would not end the pipe
            theirs.close()
        return _WorkerProcess(process, ours)

    def _next(self, worker: _WorkerProcess, waiting: deque[WorkOrder], places: Places) -> None:
        worker.order = waiting.popleft() if waiting else None
        if worker.order is not None:
            named = worker.order.task.needed
            with contextlib.suppress(OSError):  # a dead worker shows itself when it is read
                needed = {digest: place for digest, place in places.items() if digest in named}
                worker.pipe.send_bytes(msgpack.packb([order_bytes(worker.order), needed]))

    def _replace(self, worker: _WorkerProcess, order: WorkOrder, lost: set[int]) -> _WorkerProcess:
        """Return a successor for a worker that died on an order."""
        worker.pipe.close()
        worker.process.join()
        code = worker.process.exitcode
        worker.process.close()
        self._processes.remove(worker)
        # One death may be an accident, a second one on the same order is none
        if order.device in lost:
            killed = ", killed as the system does when memory runs out"
            raise EdgeFedError(
                f"Worker processes died twice on device {order.task.device} "
                f"(exit code {code}{killed if code == -signal.SIGKILL else ''}).",
                code="simulation.worker",
                hint="check the free memory, or try --set simulation.workers=1",
            )
        lost.add(order.device)
        self._fill()
        return self._processes[-1]


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Fork without a signal in between, which would find a child that is not yet its own.

    Python warns of forks beside other threads, such as a tracker's, whose locks stay as they are in
    the child; a worker uses nothing of theirs.
    """
    signals = {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "This process .* is multi-threaded")
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def core_count() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _ready(workers: Sequence[_WorkerProcess]) -> list[_WorkerProcess]:
    """Wait until a worker has something to say, or a moment, and return those that have."""
    by_pipe = {id(worker.pipe): worker for worker in workers}
    return [by_pipe[id(pipe)] for pipe in wait([worker.pipe for worker in workers], POLL)]


# -- in the worker --------------------------------------------------------------------------------


def _work(
    pipe: Connection,
    strange: Sequence[Connection],
    shards: Sequence[Shard],
    private_randomness: PrivateRandomness,
    memory: mmap.mmap,
    parent: int,
) -> None:
    """Do orders until the pipe closes or the parent is gone; Ctrl-C is the parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    for connection in strange:
        connection.close()
    set_threads(1)
    trainers, clock = TrainerCache(user_models=True, memory=UNBOUNDED), SystemClock()
    worker_for = kept_workers(shards, trainers, private_randomness)
    decoded: dict[str, Tensors] = {}
    with contextlib.suppress(EOFError, OSError, Stopped):
        while True:
            ordered, places = msgpack.unpackb(pipe.recv_bytes())
            order = read_order(ordered)
            worker = worker_for(order.device)
            for stale in decoded.keys() - places.keys():
                del decoded[stale]

            def read(digest: str, places: Places = places) -> bytes:
                start, size = places[digest]
                return memory[start : start + size]

            outcome = perform(worker, order, read, decoded, lambda: os.getppid() != parent, clock)
            pipe.send_bytes(outcome_bytes(outcome))

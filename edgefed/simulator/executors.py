"""Execute the work of virtual devices, in this process or in warm worker processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Protocol

from edgefed.config.recipes.recipe import SimulationSection
from edgefed.data.base.types import Shard
from edgefed.learn.base.types import Tensors
from edgefed.learn.training.trainer import Stopped
from edgefed.learn.training.warm_trainers import UNBOUNDED
from edgefed.process.clock import Clock, SystemClock
from edgefed.wire.messages import Task
from edgefed.worker.outcomes import Outcome, PersistentState
from edgefed.worker.private_randomness import PrivateRandomness, from_operating_system
from edgefed.worker.trainer_cache import TrainerCache
from edgefed.worker.worker import Worker, read_blob


@dataclass(frozen=True)
class WorkOrder:
    """A task for one virtual device.

    Attributes:
        device: number of the device, as its shard's.
        private: its private state of this run.
        persistent: its state across runs.
    """

    device: int
    task: Task
    private: Mapping[str, Tensors]
    persistent: PersistentState = field(default_factory=PersistentState)


class Executor(Protocol):
    """Executes orders; the outcome of an order does not depend on the worker or the time."""

    def outcomes(
        self,
        orders: Sequence[WorkOrder],
        read: Callable[[str], bytes],
        stop: Callable[[], bool],
    ) -> Iterator[tuple[WorkOrder, Outcome]]:
        """Yield outcomes as they arrive, in any order; end early when ``stop`` returns True.

        Args:
            orders: of one exchange.
            read: bytes of a blob by digest.
            stop: called now and then.
        """
        ...

    def close(self) -> None:
        """Release the executor's resources."""
        ...


Maker = Callable[[Sequence[Shard], SimulationSection, Callable[[str], None]], tuple[Executor, str]]
"""Makes the executor of a simulation, given the devices' data, the recipe's ``[simulation]`` and a
function that takes a description of the training. Returns the executor, and the description unless
the function gets it later."""


class Sequential:
    """One order after another, in this process.

    Args:
        shards: the devices' data.
        trainers: warm trainers.
        clock: measures each device's work; None for the machine's.
        private_randomness: gives the generator of a task's privacy noise.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        trainers: TrainerCache | None = None,
        clock: Clock | None = None,
        private_randomness: PrivateRandomness = from_operating_system,
    ) -> None:
        shared = trainers or TrainerCache(user_models=True, memory=UNBOUNDED)
        self._clock = clock or SystemClock()
        self._worker = kept_workers(shards, shared, private_randomness)

    def outcomes(
        self,
        orders: Sequence[WorkOrder],
        read: Callable[[str], bytes],
        stop: Callable[[], bool],
    ) -> Iterator[tuple[WorkOrder, Outcome]]:
        """Do the orders in turn; a blob that several name is decoded once."""
        decoded: dict[str, Tensors] = {}
        for order in orders:
            if stop():
                return
            try:
                worker = self._worker(order.device)
                outcome = perform(worker, order, read, decoded, stop, self._clock)
            except Stopped:
                return
            yield order, outcome

    def close(self) -> None:
        """Do nothing: no process was started."""


KEPT_WORKERS = 1000
"""Devices whose workers are kept for their next task, with copies of samples that shards make."""


def kept_workers(
    shards: Sequence[Shard],
    trainers: TrainerCache,
    private_randomness: PrivateRandomness = from_operating_system,
) -> Callable[[int], Worker]:
    """Return a function from a device's number to its worker; the most recent ones are kept."""

    @lru_cache(KEPT_WORKERS)
    def worker(number: int) -> Worker:
        return worker_of(shards[number], trainers, private_randomness)

    return worker


def worker_of(
    shard: Shard,
    trainers: TrainerCache,
    private_randomness: PrivateRandomness = from_operating_system,
) -> Worker:
    """Return the worker of a virtual device."""
    return Worker(
        trainers,
        shard.train,
        shard.test,
        shard.policy,
        shard.class_names,
        private_randomness,
        shard.preparation,
        shard.noise,
        shard.pool,
    )


def perform(
    worker: Worker,
    order: WorkOrder,
    read: Callable[[str], bytes],
    decoded: dict[str, Tensors],
    stop: Callable[[], bool] | None,
    clock: Clock,
) -> Outcome:
    """Do one order, and measure it; ``decoded`` keeps the arrays of blobs for the next one."""
    arrays, begun = arrays_of(order, read, decoded), clock.monotonic()
    kept = order.persistent
    outcome = worker.work(
        order.task, arrays, order.private, stop=stop, persistent=kept, read_relay=read
    )
    return replace(outcome, seconds=clock.monotonic() - begun)


def arrays_of(
    order: WorkOrder, read: Callable[[str], bytes], decoded: dict[str, Tensors]
) -> Callable[[str], Tensors]:
    """Return a function from role to the arrays of an order's blob; ``decoded`` keeps them."""

    def arrays(role: str) -> Tensors:
        digest = order.task.blobs[role].digest
        if digest not in decoded:
            decoded[digest] = read_blob(read(digest))
        return decoded[digest]

    return arrays

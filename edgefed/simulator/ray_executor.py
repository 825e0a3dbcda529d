"""Execute the work of virtual devices on a Ray cluster of one or many machines.

The shards are put into Ray's object store once, the payloads of an exchange once for each exchange.
Warm actors execute the orders. A free actor gets the next order, so each has at most one. Orders
and outcomes are sent in the encoding of the wire, and the outcome of an order has the same bits on
any actor. An actor that dies is replaced, and its order is submitted again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgefed.config.recipes.recipe import SimulationSection
from edgefed.data.base.types import Shard
from edgefed.errors import EdgeFedError, TimeLimitError, UsageError
from edgefed.simulator.executors import Executor, Maker, WorkOrder
from edgefed.simulator.ray_actor import RayActor, check_versions
from edgefed.simulator.ray_cluster import Cluster, cause_of, cluster
from edgefed.simulator.serialization import order_bytes, read_outcome
from edgefed.worker.outcomes import Outcome


@dataclass(eq=False)
class ActorHandle:
    """An actor.

    Attributes:
        actor: Ray's handle.
        answer: reference to the awaited answer; None for an idle actor.
        order: the current order; None while the actor starts, and when it is idle.
    """

    actor: Any
    answer: Any
    order: WorkOrder | None = None


class ActorPool:
    """Actors that stay warm from run to run.

    Args:
        cluster: where they work.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.actors: list[ActorHandle] = []
        self._ray = cluster.ray
        self._make: Any = None

    def start(self, count: int) -> None:
        """Start actors until there are ``count``; each has started once it answers a greeting.

        The first call determines how many share a GPU.
        """
        if self._make is None:
            share = gpu_share(count, self.cluster.gpus)
            # Actors that die are replaced here, so Ray restarts and repeats nothing
            options = {"num_cpus": 1, "num_gpus": share, "max_restarts": 0, "max_task_retries": 0}
            self._make = self._ray.remote(**options)(RayActor)
        accelerator = "cuda" if self.cluster.gpus else "cpu"
        while len(self.actors) < count:
            actor = self._make.remote(accelerator)
            self.actors.append(ActorHandle(actor, actor.greet.remote()))

    def heard(self, seconds: float) -> list[ActorHandle]:
        """Wait for an actor's answer, or the timeout, and return the actors that have answered."""
        awaited = {actor.answer: actor for actor in self.actors if actor.answer is not None}
        if not awaited:
            return []
        ready, _ = self._ray.wait(list(awaited), num_returns=1, timeout=seconds)
        if ready:
            # All that have answered by then, not only the first
            ready, _ = self._ray.wait(list(awaited), num_returns=len(awaited), timeout=0)
        return [awaited[answer] for answer in ready]

    def dismiss(self, actor: ActorHandle) -> None:
        """End an actor, even if it is dead or has not started."""
        self.actors.remove(actor)
        self._ray.kill(actor.actor)

    def close(self) -> None:
        """End all of them."""
        for actor in list(self.actors):
            self.dismiss(actor)


def gpu_share(actors: int, gpus: int) -> float:
    """Return the share of a GPU for each actor; one actor cannot have parts of two GPUs."""
    return 1 / math.ceil(actors / gpus) if gpus else 0


CRATE = 64
"""Shards put into the store as one: each put takes a millisecond, each order opens one crate."""

POLL = 0.5
"""Seconds between two questions whether to stop."""

PATIENCE = 120.0
"""Seconds for the cluster to find room for the first actor, and for the actor to start."""

STARTS = 3
"""Actors that may die before they answer, one after another, until it is no accident."""


@contextmanager
def on_ray(address: str = "", workers: int = 0, patience: float = PATIENCE) -> Iterator[Maker]:
    """Yield the maker of executors of simulations.

    The actors stay warm from simulation to simulation, and end with the ``with`` block.

    Args:
        address: of the cluster, as ``cluster`` takes it.
        workers: of a cluster of our own, likewise.
        patience: seconds to wait for the first actor.

    Raises:
        EdgeFedError: as ``cluster`` raises them.
    """
    with cluster(address, workers) as joined:
        actor_pool = ActorPool(joined)

        def make(
            shards: Sequence[Shard], settings: SimulationSection, tell: Callable[[str], None]
        ) -> tuple[Executor, str]:
            if settings.engine == "stacked":
                raise UsageError(
                    "The stacked engine trains in one process, not on Ray.",
                    code="ray.engine",
                    hint="omit --on ray, or use --set simulation.engine=auto",
                )
            executor = RayExecutor(actor_pool, shards, settings.workers, patience, tell)
            return executor, f"trains in {executor.count} actors, {joined}"

        try:
            yield make
        finally:
            actor_pool.close()


class RayExecutor:
    """Executes orders in actors.

    Args:
        actor_pool: the actors; they outlive the executor.
        shards: the devices' data.
        workers: number of actors; 0 for one a CPU of the cluster.
        patience: seconds to wait for the first actor.
        tell: called with messages about actors that died.
    """

    def __init__(
        self,
        actor_pool: ActorPool,
        shards: Sequence[Shard],
        workers: int = 0,
        patience: float = PATIENCE,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._actor_pool = actor_pool
        self._ray = actor_pool.cluster.ray
        self._patience = patience
        self._tell = tell
        self.count = min(workers or max(1, actor_pool.cluster.cpus), len(shards))
        starts = range(0, len(shards), CRATE)
        self._crates = [self._ray.put(list(shards[at : at + CRATE])) for at in starts]

    def outcomes(
        self,
        orders: Sequence[WorkOrder],
        read: Callable[[str], bytes],
        stop: Callable[[], bool],
    ) -> Iterator[tuple[WorkOrder, Outcome]]:
        """Submit the orders and yield outcomes as they arrive.

        Raises:
            EdgeFedError: an actor and its successor died on the same order, or no actor starts.
        """
        named = {digest for order in orders for digest in order.task.needed}
        blobs = {digest: self._put(read(digest)) for digest in named}
        exchange = _Exchange(self._actor_pool, self._crates, blobs, orders, self._tell)
        actors, waited = min(self.count, len(orders)), 0.0
        try:
            while not exchange.over:
                if stop():
                    return
                self._actor_pool.start(actors)
                came = exchange.hear(POLL)
                # Only the time in which no actor works counts
                waited = 0.0 if came or exchange.begun else waited + POLL
                if waited >= self._patience:
                    raise self._no_room()
                yield from came
        finally:
            exchange.abandon()

    def close(self) -> None:
        """Remove the shards from Ray's object store."""
        self._crates = []

    def _put(self, data: bytes) -> Any:
        """Put bytes as an array, which Ray shares among processes without a copy."""
        return self._ray.put(np.frombuffer(data, np.uint8))

    def _no_room(self) -> TimeLimitError:
        free = self._ray.available_resources()
        text = f"{free.get('CPU', 0):g} of its {self._actor_pool.cluster.cpus} CPUs are free"
        if self._actor_pool.cluster.gpus:
            text += f", {free.get('GPU', 0):g} of its {self._actor_pool.cluster.gpus} GPUs"
        return TimeLimitError(
            f"No actor has started on Ray after {self._patience:.0f} s: {text}.",
            code="ray.room",
            hint="wait until the cluster has free resources (ray status), or omit --on ray",
        )


class _Exchange:
    """The orders of one exchange: the waiting ones, and those of actors.

    Args:
        actor_pool: the actors.
        crates: references to the shards, ``CRATE`` a reference.
        blobs: references to the blobs' bytes by digest.
        orders: to be executed.
        tell: called with messages about actors that died.
    """

    def __init__(
        self,
        actor_pool: ActorPool,
        crates: Sequence[Any],
        blobs: Mapping[str, Any],
        orders: Sequence[WorkOrder],
        tell: Callable[[str], None],
    ) -> None:
        self._actor_pool = actor_pool
        self._crates = crates
        self._blobs = blobs
        self._tell = tell
        self._waiting = deque(orders)
        self._lost: set[int] = set()
        self._stillborn = 0

    @property
    def begun(self) -> bool:
        """Whether an actor works."""
        return any(actor.order is not None for actor in self._actor_pool.actors)

    @property
    def over(self) -> bool:
        """Whether all is done."""
        return not self._waiting and not self.begun

    def hear(self, seconds: float) -> list[tuple[WorkOrder, Outcome]]:
        """Give orders to idle actors, wait so long for answers, and return the finished orders."""
        self._assign()
        done = []
        for actor in self._actor_pool.heard(seconds):
            order, answer = actor.order, actor.answer
            actor.order = actor.answer = None
            try:
                said = self._actor_pool.cluster.ray.get(answer)
            except self._actor_pool.cluster.ray.exceptions.RayError as error:
                self._replace(actor, order, cause_of(error))
                continue
            if order is None:
                self._stillborn = 0
                check_versions(said)
            else:
                done.append((order, read_outcome(said)))
        self._assign()
        return done

    def abandon(self) -> None:
        """End the actors that still work: their orders are wanted no more."""
        for actor in [actor for actor in self._actor_pool.actors if actor.order is not None]:
            self._actor_pool.dismiss(actor)

    def _assign(self) -> None:
        for actor in self._actor_pool.actors:
            if actor.answer is None and self._waiting:
                actor.order = self._waiting.popleft()
                actor.answer = self._ask(actor, actor.order)

    def _ask(self, actor: ActorHandle, order: WorkOrder) -> Any:
        crate, place = divmod(order.device, CRATE)
        named = {digest: self._blobs[digest] for digest in order.task.needed}
        return actor.actor.work.remote(order_bytes(order), self._crates[crate], place, named)

    def _replace(self, actor: ActorHandle, order: WorkOrder | None, reason: str) -> None:
        """Let a dead actor go; its order is the next to be given out."""
        self._actor_pool.dismiss(actor)
        if order is None:
            self._stillborn += 1
            if self._stillborn >= STARTS:
                raise EdgeFedError(
                    f"No actor starts on the Ray cluster: {reason}.",
                    code="ray.actor",
                    hint="install EdgeFed and torch on all machines of the cluster",
                )
            return
        if order.device in self._lost:
            raise EdgeFedError(
                f"Ray actors died twice on device {order.task.device}: {reason}.",
                code="simulation.worker",
                hint="check the free memory, or try fewer actors with --set simulation.workers=1",
            )
        self._tell(f"an actor died; {order.task.device} is asked again: {reason}")
        self._lost.add(order.device)
        self._waiting.appendleft(order)

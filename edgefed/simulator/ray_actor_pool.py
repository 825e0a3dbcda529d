"""A pool of actors on a Ray cluster: start them, submit orders, wait for outcomes, stop them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from edgefed.simulator.executors import Order
from edgefed.simulator.ray_actor import RayActor
from edgefed.simulator.ray_cluster import Cluster


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
    order: Order | None = None


class ActorPool:
    """Actors that stay warm from run to run.

    Args:
        cluster: of the actors.
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
            ready, _ = self._ray.wait(list(awaited), num_returns=len(awaited), timeout=0)
        return [awaited[each] for each in ready]

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

"""An actor that executes orders on a Ray cluster, in its own process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from edgefed.data.base.types import Shard
from edgefed.errors import EdgeFedError
from edgefed.files.user_code import classes_allowed
from edgefed.learn.base.processors import set_threads
from edgefed.learn.base.types import Tensors
from edgefed.process.clock import SystemClock
from edgefed.simulator.executors import perform, worker_of
from edgefed.simulator.serialization import outcome_bytes, read_order
from edgefed.version import VERSION
from edgefed.worker.trainer_cache import TrainerCache


def versions() -> dict[str, str]:
    """Return the versions that must be the same everywhere for runs to give the same bits."""
    return {"EdgeFed": VERSION, "torch": torch.__version__.partition("+")[0]}


def check_versions(theirs: Mapping[str, str]) -> None:
    """Check that a machine of the cluster has the versions of this one.

    Raises:
        EdgeFedError: it has others.
    """
    for name, ours in versions().items():
        if theirs[name] != ours:
            raise EdgeFedError(
                f"A machine of the Ray cluster has {name} {theirs[name]}, this one has {ours}.",
                code="ray.version",
                hint="install the same versions here and on the cluster",
            )


class RayActor:
    """The object of an actor; it stays warm from order to order.

    Args:
        accelerator: the processor, as ``pick_device`` takes it.
    """

    def __init__(self, accelerator: str) -> None:
        set_threads(1)
        self._trainer_cache = TrainerCache(accelerator, user_models=True)
        self._clock = SystemClock()
        self._decoded: dict[str, Tensors] = {}

    def greet(self) -> dict[str, str]:
        """Return the actor's versions, as a sign that it has started."""
        return versions()

    def work(
        self, ordered: bytes, crate: Sequence[Shard], place: int, blobs: Mapping[str, Any]
    ) -> bytes:
        """Execute an order.

        Args:
            ordered: the order, as ``order_bytes`` writes it.
            crate: several devices' data, in the memory that the machine's processes share.
            place: of the order's device in it.
            blobs: references to the bytes of the exchange's blobs, by digest.

        Returns:
            The outcome, as ``outcome_bytes`` writes it.
        """
        import ray

        def read(digest: str) -> bytes:
            return bytes(ray.get(blobs[digest]))

        for stale in self._decoded.keys() - blobs.keys():
            del self._decoded[stale]
        order, shard = read_order(ordered), crate[place]
        worker = worker_of(shard, self._trainer_cache)
        with classes_allowed():
            return outcome_bytes(perform(worker, order, read, self._decoded, None, self._clock))

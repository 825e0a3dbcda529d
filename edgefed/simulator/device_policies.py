"""Choose which virtual devices share averaged data and which refuse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edgefed.data.base.types import Shard
from edgefed.seeds import generator
from edgefed.sharing.policy import Policy


def with_policies(shards: Sequence[Shard], sharing: float, seed: int) -> Sequence[Shard]:
    """Return the shards; a random fraction of them gets a policy that shares averages.

    Args:
        shards: one a device.
        sharing: the fraction, 0 to 1; rounded to whole devices.
        seed: of the run.
    """
    order = generator(seed, "policies").permutation(len(shards))
    silent = set(order[round(sharing * len(shards)) :].tolist())
    if not silent:
        return shards
    return [
        replace(shard, policy=Policy(share_means=False)) if number in silent else shard
        for number, shard in enumerate(shards)
    ]

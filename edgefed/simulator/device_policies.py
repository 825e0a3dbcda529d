"""Choose which virtual devices share averaged data and which refuse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edgefed.data.types import Shard
from edgefed.seeds import generator
from edgefed.sharing.policy import Policy


def with_policies(shards: Sequence[Shard], sharing: float, seed: int) -> list[Shard]:
    """Return the shards with a share of them, drawn at random, whose policy lets averages go.

    Args:
        shards: one a device.
        sharing: how many of them, 0 to 1; rounded to whole devices.
        seed: of the run.
    """
    order = generator(seed, "policies").permutation(len(shards))
    silent = set(order[round(sharing * len(shards)) :].tolist())
    return [
        replace(shard, policy=Policy(share_means=False)) if number in silent else shard
        for number, shard in enumerate(shards)
    ]

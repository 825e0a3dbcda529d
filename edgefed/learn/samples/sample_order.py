"""The order in which a device visits its samples: each epoch's permutation, cut into batches."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from edgefed.learn.base.types import Schedule


def permutations(count: int, schedule: Schedule, seed: int) -> Iterator[torch.Tensor]:
    """Yield the order of ``count`` samples for every epoch, as int64 on the CPU.

    It is drawn on the CPU for every processor, so that all devices shuffle alike. With
    ``carry_state`` the samples keep their order.
    """
    generator = torch.Generator().manual_seed(seed)
    for _ in range(schedule.epochs):
        if schedule.carry_state:
            yield torch.arange(count)
        else:
            yield torch.randperm(count, generator=generator)


def batch_sizes(count: int, schedule: Schedule, *, pairs: bool = False) -> list[int]:
    """Return the sizes of an epoch's batches of ``count`` samples; the last may be short.

    Args:
        count: number of samples.
        schedule: how large a batch is.
        pairs: whether a batch needs two samples, as batch normalisation does: a single sample that
            is left over then joins the batch before it.
    """
    full, rest = divmod(count, schedule.batch_size)
    sizes = [schedule.batch_size] * full + [rest] * (rest > 0)
    if pairs and rest == 1 and full:
        sizes[-2:] = [schedule.batch_size + 1]
    return sizes


def planned_steps(count: int, schedule: Schedule, *, pairs: bool = False) -> int:
    """Return the number of steps of a schedule over ``count`` samples, in the same batches."""
    steps = schedule.epochs * len(batch_sizes(count, schedule, pairs=pairs))
    return min(steps, schedule.max_steps) if schedule.max_steps else steps

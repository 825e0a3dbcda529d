"""Local SGD: the order of the samples, and the step with momentum and weight decay.

``torch.optim`` is not used, because creating the first optimiser of a process takes over a second.
"""

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
    """Return how many steps a schedule makes of ``count`` samples, in batches as above."""
    steps = schedule.epochs * len(batch_sizes(count, schedule, pairs=pairs))
    return min(steps, schedule.max_steps) if schedule.max_steps else steps


class Sgd:
    """Gradient descent with heavy-ball momentum: v ← m v + g, w ← w - η v.

    g includes the weight decay d w. η is the learning rate, m the momentum; v starts at zero. With
    Nesterov's momentum w ← w - η (g + m v).
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._velocity: list[torch.Tensor] = []

    @torch.no_grad()
    def step(self, weights: list[torch.Tensor], gradients: list[torch.Tensor], rate: float) -> None:
        """Move ``weights``, in place, against ``gradients`` with a learning rate."""
        schedule = self._schedule
        if schedule.weight_decay:
            gradients = list(torch._foreach_add(gradients, weights, alpha=schedule.weight_decay))
        if schedule.momentum:
            gradients = self._momentum(gradients)
        torch._foreach_add_(weights, gradients, alpha=-rate)

    def _momentum(self, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return the direction of the step: the velocity after ``gradients``, or Nesterov's."""
        if not self._velocity:
            self._velocity = [gradient.clone() for gradient in gradients]
        else:
            torch._foreach_mul_(self._velocity, self._schedule.momentum)
            torch._foreach_add_(self._velocity, gradients)
        if self._schedule.nesterov:
            return list(
                torch._foreach_add(gradients, self._velocity, alpha=self._schedule.momentum)
            )
        return self._velocity

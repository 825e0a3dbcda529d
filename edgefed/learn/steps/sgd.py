"""Local SGD: the step with momentum and weight decay.

``torch.optim`` is not used, because creating the first optimiser of a process takes over a second.
"""

from __future__ import annotations

import torch

from edgefed.learn.base.types import Schedule


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

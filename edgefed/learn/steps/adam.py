"""Local Adam and AdamW: the steps of ``torch.optim``, which takes a second to import.

Kingma, Ba: Adam: A Method for Stochastic Optimization, ICLR 2015. Loshchilov, Hutter: Decoupled
Weight Decay Regularization, ICLR 2019.
"""

from __future__ import annotations

import torch

from edgefed.learn.base.types import Schedule


class Adam:
    """m ← β1 m + (1 - β1) g,  v ← β2 v + (1 - β2) g²,  w ← w - η m̂ / (√v̂ + ε).

    g includes the weight decay d w; with AdamW it does not, and w ← (1 - η d) w before the step. m̂
    and v̂ are divided by 1 - β1^t and 1 - β2^t in step t; both moments start at zero.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._first: list[torch.Tensor] = []
        self._second: list[torch.Tensor] = []
        self._steps = 0

    @torch.no_grad()
    def step(self, weights: list[torch.Tensor], gradients: list[torch.Tensor], rate: float) -> None:
        """Move ``weights``, in place, against ``gradients`` with a learning rate."""
        schedule = self._schedule
        if not self._first:
            self._first = [torch.zeros_like(weight) for weight in weights]
            self._second = [torch.zeros_like(weight) for weight in weights]
        self._steps += 1
        if schedule.weight_decay and schedule.optimizer == "adamw":
            torch._foreach_mul_(weights, 1 - rate * schedule.weight_decay)
        elif schedule.weight_decay:
            gradients = list(torch._foreach_add(gradients, weights, alpha=schedule.weight_decay))
        torch._foreach_lerp_(self._first, gradients, 1 - schedule.beta1)
        torch._foreach_mul_(self._second, schedule.beta2)
        torch._foreach_addcmul_(self._second, gradients, gradients, 1 - schedule.beta2)
        length = rate / (1 - schedule.beta1**self._steps)
        spread = float((1 - schedule.beta2**self._steps) ** 0.5)
        for weight, first, second in zip(weights, self._first, self._second, strict=True):
            root = second.sqrt().div_(spread).add_(schedule.epsilon)
            weight.addcdiv_(first, root, value=-length)

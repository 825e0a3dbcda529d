"""How the learning rate changes over a round's steps or a run's rounds, after a warm-up.

With T steps or rounds, the first W = round(``warm_up`` T), fewer than T, are the warm-up. At place
t, counted from 0, the rate is multiplied by

    (t + 1) / (W + 1)                          for t < W; then, with n = t - W and N = T - W,
    1                                          constant
    f + (1 - f) (1 + cos(pi n / N)) / 2        cosine, with f the ``final_rate``
    1 - (1 - f) n / N                          linear
    max(f, s^floor(n / k))                     step, with s the ``step_factor``, k ``step_every``

These are the factors of ``LinearLR`` for the warm-up and of ``CosineAnnealingLR``, ``LinearLR`` and
``StepLR`` in ``torch.optim.lr_scheduler``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgefed.config.recipes.training_section import ScheduleName


@dataclass(frozen=True)
class RateSchedule:
    """The factors above.

    Attributes:
        name: of the formula that follows the warm-up.
        warm_up: share of the places that warm up, below 1.
        final_rate: f, from 0 to 1.
        step_every: k, at least 1.
        step_factor: s, above 0 and at most 1.
    """

    name: ScheduleName = "constant"
    warm_up: float = 0.0
    final_rate: float = 0.0
    step_every: int = 1
    step_factor: float = 0.1

    @property
    def is_constant(self) -> bool:
        """Whether all factors are 1."""
        return self.name == "constant" and not self.warm_up

    def factor(self, place: int, length: int) -> float:
        """Return the factor at a place, from 0, of ``length`` places; it is above 0 or ``f``."""
        warm = min(round(self.warm_up * length), length - 1)
        if place < warm:
            return (place + 1) / (warm + 1)
        after, rest = place - warm, length - warm
        if self.name == "cosine":
            share = (1 + math.cos(math.pi * after / rest)) / 2
            return self.final_rate + (1 - self.final_rate) * share
        if self.name == "linear":
            return 1 - (1 - self.final_rate) * after / rest
        if self.name == "step":
            return max(self.final_rate, self.step_factor ** (after // self.step_every))
        return 1.0

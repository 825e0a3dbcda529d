"""FedProx's proximal term, on top of any objective.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks,
MLSys 2020, equation 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from edgefed.config.recipes.class_weights import ClassWeights
from edgefed.learn.base.types import Array, Batch, Context, Forward, Objective, Params
from edgefed.learn.modeling.model import Model
from edgefed.learn.steps import capabilities
from edgefed.learn.steps.capabilities import Phase


@dataclass(frozen=True)
class Proximal:
    """h(w) = inner(w) + μ/2 ||w - anchor||² over the weights that are trained.

    Attributes:
        inner: the objective that is held near the anchor.
        mu: strength of the pull, at least 0; 0 is ``inner`` itself, bit for bit. The FedProx paper
            tunes it over 0.001, 0.01, 0.1 and 1.
    """

    inner: Objective
    mu: float

    @property
    def single_pass(self) -> bool:
        """Whether the inner objective calls the model once per step."""
        return capabilities.is_single_pass(self.inner)

    @property
    def class_weights(self) -> ClassWeights:
        """The weights that the inner objective's loss needs."""
        return capabilities.class_weights(self.inner)

    def check(self, model: Model, extra: Mapping[str, Array]) -> None:
        """Let the inner objective check; see ``capabilities``."""
        capabilities.check(self.inner, model, extra)

    def draw(
        self, generator: np.random.Generator, size: int, extra: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Return the draws of the inner objective."""
        return capabilities.draw(self.inner, generator, size, extra)

    def phases(self, model: Model, trained: tuple[str, ...]) -> tuple[Phase, ...]:
        """Return the inner objective's updates, each with the term."""
        inner = capabilities.phases(self.inner, model, trained)
        return tuple(Phase(Proximal(phase.objective, self.mu), phase.trained) for phase in inner)

    def __call__(
        self, forward: Forward, params: Params, batch: Batch, context: Context
    ) -> torch.Tensor:
        """Return the scalar loss."""
        loss = self.inner(forward, params, batch, context)
        if self.mu == 0 or not context.anchor:
            return loss
        distances = [
            (params[name] - start).square().sum() for name, start in context.anchor.items()
        ]
        return loss + self.mu / 2 * torch.stack(distances).sum()


def with_loss(objective: Objective, loss: Objective) -> Objective:
    """Return an objective with another loss: the proximal term, where it has one, stays."""
    return Proximal(loss, objective.mu) if isinstance(objective, Proximal) else loss

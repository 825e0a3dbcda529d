"""An objective with a term in the weights added, which leaves the loss of the samples as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from edgefed.config.recipes.class_weights import ClassWeights
from edgefed.learn.base.types import Array, Batch, Context, Forward, Objective, Params
from edgefed.learn.modeling.model import Model
from edgefed.learn.steps import capabilities
from edgefed.learn.steps.capabilities import Phase


@dataclass(frozen=True)
class AddedTerm:
    """Delegates all but the loss to the objective inside; a subclass defines ``term``.

    Attributes:
        inner: the objective to which the term is added.
    """

    inner: Objective

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
        return tuple(Phase(replace(self, inner=phase.objective), phase.trained) for phase in inner)

    def __call__(
        self, forward: Forward, params: Params, batch: Batch, context: Context
    ) -> torch.Tensor:
        """Return the scalar loss."""
        loss = self.inner(forward, params, batch, context)
        added = self.term(params, context)
        return loss if added is None else loss + added

    def term(self, params: Params, context: Context) -> torch.Tensor | None:
        """Return the scalar term; None where there is none."""
        raise NotImplementedError


def with_loss(objective: Objective, loss: Objective) -> Objective:
    """Return an objective with another loss: its added terms stay."""
    if isinstance(objective, AddedTerm):
        return replace(objective, inner=with_loss(objective.inner, loss))
    return loss

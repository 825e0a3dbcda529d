"""MOON's model-contrastive loss, on top of any objective that calls the model once.

Li, He, Song: Model-Contrastive Federated Learning, CVPR 2021, arXiv 2103.16257, equation 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from edgefed.config.recipes.class_weights import ClassWeights
from edgefed.learn.base.types import Array, Batch, Context, Forward, Objective, Params, Tensors
from edgefed.learn.modeling.model import Model
from edgefed.learn.steps import capabilities

GLOBAL, PREVIOUS = "global.", "previous."
"""Before the names of weights in the job's extras: of the round, and of the device's last model."""


@dataclass(frozen=True)
class ModelContrastive:
    """h(w) = inner(w) + μ l_con, where l_con is a mean over the samples of a batch.

        l_con = - mean log( exp(s(z, z_g) / τ) / (exp(s(z, z_g) / τ) + exp(s(z, z_p) / τ)) )

    z, z_g and z_p are the features of a sample under w, the round's weights and the device's last
    model; s is the cosine similarity. Features are the inputs of the output layer.

    Attributes:
        inner: the loss of the logits.
        model: the model in training.
        mu: μ, above 0.
        temperature: τ.
    """

    inner: Objective
    model: Model
    mu: float
    temperature: float

    @property
    def class_weights(self) -> ClassWeights:
        """The weights that the inner objective's loss needs."""
        return capabilities.class_weights(self.inner)

    def check(self, model: Model, extra: Mapping[str, Array]) -> None:
        """Check that the model has features.

        Raises:
            DataError: ``model.features``: it has none.
        """
        capabilities.check(self.inner, model, extra)
        _ = model.output_layer

    def draw(
        self, generator: np.random.Generator, size: int, extra: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Return the draws of the inner objective."""
        return capabilities.draw(self.inner, generator, size, extra)

    def __call__(
        self, forward: Forward, params: Params, batch: Batch, context: Context
    ) -> torch.Tensor:
        """Return the scalar loss."""
        logits, own = self.model.forward_with_features(params, batch.inputs)

        def known(weights: Params, inputs: torch.Tensor) -> torch.Tensor:
            return logits if inputs is batch.inputs else forward(weights, inputs)

        loss = self.inner(known, params, batch, context)
        near, far = (self._features(batch, context, prefix) for prefix in (GLOBAL, PREVIOUS))
        similar = torch.stack(
            [functional.cosine_similarity(own, other, dim=1) for other in (near, far)], dim=1
        )
        first = torch.zeros(len(own), dtype=torch.int64, device=own.device)
        return loss + self.mu * functional.cross_entropy(similar / self.temperature, first)

    @torch.no_grad()
    def _features(self, batch: Batch, context: Context, prefix: str) -> torch.Tensor:
        """Return the features of a batch under other weights, whose statistics stay as they are."""
        trained = set(self.model.parameter_names)
        weights = {name: context.extra[prefix + name] for name in self.model.names}
        copies = {name: part if name in trained else part.clone() for name, part in weights.items()}
        return self.model.forward_with_features(copies, batch.inputs)[1]


def compared_with(weights: Tensors, previous: Tensors) -> Tensors:
    """Return the round's weights and the device's last model as a job's extras hold them."""
    near = {GLOBAL + name: array for name, array in weights.items()}
    return near | {PREVIOUS + name: array for name, array in previous.items()}

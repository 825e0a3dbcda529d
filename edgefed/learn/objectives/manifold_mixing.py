"""Mixing of hidden states instead of inputs: the "manifold" variants of NaiveMix and FedMix.

Yoon, Shin, Hwang, Yang: FedMix: Approximation of Mixup under Mean Augmented Federated Learning,
ICLR 2021, appendix E; after Verma et al.: Manifold Mixup, ICML 2019.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from edgefed.config.recipes.class_weights import ClassWeights
from edgefed.errors import DataError
from edgefed.learn.base.types import Array, Batch, Context, Forward, Objective, Params
from edgefed.learn.modeling.model import Model
from edgefed.learn.objectives.averaged_entries import DRAWN, unpacked
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.smoothing_and_weights import CLASS_WEIGHTS
from edgefed.learn.steps import capabilities
from edgefed.learn.steps.capabilities import Phase


@dataclass(frozen=True)
class ManifoldMixing:
    """Two updates a step: first the layers behind the split on mixed states, then all layers.

    The first descends ``inner`` with the hidden states of the batch for inputs and received states
    for entries, both constants; it moves the decoder, the weights behind the split, only. The
    second descends ``usual`` on the same batch and moves all weights; its loss is the step's. Each
    has a momentum of its own, and running statistics are counted in the second alone.

    Extras: ``inputs`` are averages of hidden states. For tokens they are averages of one-hot
    sequences (entries, length, vocabulary), whose product with the embedding of the moment is the
    average of the embedded sequences exactly; or raw sequences (entries, length), int64.

    Attributes:
        inner: the mixing objective.
        split: layers in front of the split; see ``splitting``.
        embedding_grad: whether the first update moves the layers in front of the split too; the
            paper's does not.
        usual: the objective of the second update.
    """

    inner: Objective
    split: int = 1
    embedding_grad: bool = False
    usual: Objective = field(default_factory=CrossEntropy)

    @property
    def class_weights(self) -> ClassWeights:
        """The weights that the loss needs; see ``capabilities``."""
        return capabilities.class_weights(self.usual)

    def check(self, model: Model, extra: Mapping[str, Array]) -> None:
        """Check that the model can be split there, and that the extras fit the split.

        Raises:
            DataError: one of the two fails.
        """
        encoder, decoder = model.halves(self.split)
        shape = decoder.shape
        if model.vocabulary is not None:
            if len(encoder.names) != 1:
                raise DataError(
                    f"Averaged tokens cannot be mixed after {self.split} layers:"
                    " their average goes through an embedding only.",
                    code="model.split",
                    hint="set split = 1",
                )
            raw = "inputs" in extra and extra["inputs"].dtype.kind == "i"
            shape = model.shape if raw else (*model.shape, model.vocabulary)
        seen = Model(decoder.module, shape, model.classes)
        capabilities.check(self.inner, seen, extra)

    def draw(
        self, generator: np.random.Generator, size: int, extra: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Return the draws of ``inner``."""
        return capabilities.draw(self.inner, generator, size, extra)

    def phases(self, model: Model, trained: tuple[str, ...]) -> tuple[Phase, ...]:
        """Return the two updates; the first is left out where it has nothing to move."""
        encoder, decoder = model.halves(self.split)
        behind = set(model.parameter_names if self.embedding_grad else decoder.parameter_names)
        moved = tuple(name for name in trained if name in behind)
        mixed = Phase(_Mixed(self.inner, encoder, decoder, self.embedding_grad), moved)
        return (*([mixed] if moved else []), Phase(self.usual, trained))

    def __call__(
        self, forward: Forward, params: Params, batch: Batch, context: Context
    ) -> torch.Tensor:
        """Return the loss of the second update."""
        return self.usual(forward, params, batch, context)


@dataclass(frozen=True)
class _Mixed:
    """The first update's objective."""

    inner: Objective
    encoder: Model
    decoder: Model
    embedding_grad: bool

    def __call__(
        self, forward: Forward, params: Params, batch: Batch, context: Context
    ) -> torch.Tensor:
        """Return ``inner``'s loss of the hidden states."""
        kept = (*self.encoder.buffer_names, *self.decoder.buffer_names)
        params = {**params, **{name: params[name].clone() for name in kept}}
        with torch.set_grad_enabled(self.embedding_grad):
            hidden = self.encoder.forward(params, batch.inputs)
            if self.encoder.vocabulary is not None:
                context = self._embedded(params, context)
        return self.inner(self.decoder.forward, params, Batch(hidden, batch.targets), context)

    def _embedded(self, params: Params, context: Context) -> Context:
        """Return the context with the entries of this step embedded, and no others."""
        if DRAWN not in context.draws:
            return context
        which = context.draws[DRAWN]
        inputs = unpacked(context.extra, which)
        if inputs.is_floating_point():
            (table,) = (params[name] for name in self.encoder.names)
            inputs = inputs.to(table.dtype) @ table
        else:
            inputs = self.encoder.forward(params, inputs)
        taken = {"inputs": inputs, "targets": context.extra["targets"].index_select(0, which)}
        if CLASS_WEIGHTS in context.extra:
            taken[CLASS_WEIGHTS] = context.extra[CLASS_WEIGHTS]
        drawn = {**context.draws, DRAWN: torch.arange(len(inputs), device=inputs.device)}
        return replace(context, extra=taken, draws=drawn)

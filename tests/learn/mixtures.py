"""What the tests of mixtures of experts share: experts, a table, a gate, a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from edgefed.learn.base.types import Array, Batch, Params, Tensors
from edgefed.learn.modeling.model import Model
from edgefed.learn.objectives.expert_mixture import (
    CONDITIONS,
    FREQUENCIES,
    GATE_BIAS,
    GATE_WEIGHT,
    PERSONAL_BIAS,
    SHARES,
    TABLE,
    ExpertMixture,
    expert_name,
)

VALUES = 5
"""Of the column that experts may be conditioned on."""


class Mixture:
    """A mixture and what it is given, in float32.

    Args:
        model: one expert.
        experts: K.
        kept: numbers of those that are here; all of them if left out.
        size: of the batch.
        by_column: whether the condition is a column instead of the label.
        soft: whether targets are soft, and of any sum.
        sharpness: of the shares of each condition.
        settings: of the objective.
    """

    def __init__(
        self,
        model: Model,
        experts: int,
        kept: Sequence[int] | None = None,
        *,
        size: int = 7,
        seed: int = 0,
        by_column: bool = False,
        soft: bool = False,
        sharpness: float = 2.0,
        **settings: Any,
    ) -> None:
        rng = np.random.default_rng(seed)
        here = tuple(range(experts) if kept is None else kept)
        self.objective = ExpertMixture(model, experts, here, **settings)
        self.weights: Tensors = {}
        self.variables: Tensors = {}
        for expert in here:
            for name, start in model.weights().items():
                moved = start + rng.standard_normal(start.shape) * 0.1
                first, held = expert == here[0], expert_name(expert, name)
                (self.weights if first else self.variables)[name if first else held] = moved
        rows = VALUES if by_column else model.classes
        self.extra: Tensors = {}
        if self.objective.by_device:
            self.variables[SHARES] = rng.dirichlet(np.ones(experts))
        else:
            self.variables[TABLE] = sharpness * rng.standard_normal((rows, experts))
            self.extra[FREQUENCIES] = rng.dirichlet(np.ones(rows))
        if by_column:
            self.extra[CONDITIONS] = rng.integers(0, VALUES, 2 * size)
        self.variables[GATE_WEIGHT] = rng.standard_normal((model.output_layer.width, experts)) / 4
        self.variables[GATE_BIAS] = rng.standard_normal(experts)
        if self.objective.has_bias:
            self.variables[PERSONAL_BIAS] = rng.standard_normal(model.classes)
        inputs = torch.from_numpy(rng.standard_normal((size, *model.shape)).astype(np.float32))
        targets = torch.from_numpy(rng.integers(0, model.classes, size))
        if soft:
            given = rng.dirichlet(np.ones(model.classes), size) * rng.uniform(0.5, 1.5, (size, 1))
            targets = torch.from_numpy(given.astype(np.float32))
        self.batch = Batch(inputs, targets, torch.from_numpy(rng.permutation(2 * size)[:size]))
        for part in (self.weights, self.variables, self.extra):
            part.update({name: narrow(array) for name, array in part.items()})

    @property
    def trained(self) -> tuple[str, ...]:
        """Names of what is trained."""
        names = (*self.weights, *self.variables)
        return tuple(name for name in names if name not in self.objective.assigned)

    def params(self, kind: torch.dtype = torch.float32) -> Params:
        """Return a fresh copy of weights and variables, of which the trained ones are leaves."""
        given = {**self.weights, **self.variables}
        params = {name: torch.tensor(array).to(kind) for name, array in given.items()}
        for name in self.trained:
            params[name].requires_grad_()
        return params

    def extras(self) -> Params:
        return {name: torch.tensor(array) for name, array in self.extra.items()}


def narrow(array: Array) -> Array:
    return array if array.dtype.kind == "i" else array.astype(np.float32)


def mean_slope(mixture: Mixture, expert: int, params: Params) -> float:
    """Return the batch's mean norm of the gradient of an expert's cross-entropy."""
    objective, batch = mixture.objective, mixture.batch
    weights = objective.weights_of(expert, params)
    norms = []
    for number in range(len(batch.inputs)):
        logits = objective.model.forward(weights, batch.inputs[number : number + 1])
        logits = logits + params[PERSONAL_BIAS] if objective.has_bias else logits
        loss = functional.cross_entropy(logits, batch.targets[number : number + 1])
        found = torch.autograd.grad(loss, list(weights.values()))
        norms.append(float(torch.cat([each.flatten() for each in found]).norm()))
    return float(np.mean(norms))

"""Networks of every kind in small, with weights that all count, and assignments of their units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from edgefed.config.recipes.recipe import ModelSection
from edgefed.learn.base.permutation_groups import PermutationGroups
from edgefed.learn.base.types import Array, Tensors
from edgefed.learn.base.unit_moves import Assignments
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build
from edgefed.learn.modeling.network_groups import permutation_groups, resized

CLASSES = 3
TALL = (2, 8, 5)
"""An image that is not a square."""


@dataclass(frozen=True)
class Small:
    """A small network: its settings, and the shape of an input."""

    name: str
    shape: tuple[int, ...]
    settings: Mapping[str, Any]

    @property
    def section(self) -> ModelSection:
        return ModelSection(name=self.name, **self.settings)

    @cached_property
    def groups(self) -> PermutationGroups:
        return permutation_groups(self.section, self.shape, CLASSES)

    def resized(self, widths: Mapping[str, int]) -> Small:
        section = resized(self.section, widths)
        return Small(self.name, self.shape, section.settings())

    def model(self) -> Model:
        """Return the network; ``outputs`` changes its kind of number and its mode, no weights."""
        return self._model

    @cached_property
    def _model(self) -> Model:
        return build(self.section, self.shape, CLASSES, seed=1)

    def inputs(self, count: int, seed: int) -> torch.Tensor:
        """Return a batch: noise, or tokens for the LSTM."""
        chance = torch.Generator().manual_seed(seed)
        if self.name == "lstm":
            return torch.randint(0, CLASSES, (count, *self.shape), generator=chance)
        return torch.randn(count, *self.shape, generator=chance, dtype=torch.float64)


INNER18 = [2, 3, 2, 4, 3, 2, 4, 3]
INNER20 = [2, 3, 2, 4, 3, 2, 4, 3, 2]

PLAIN = {
    "mlp": Small("mlp", (5,), {"hidden": [4, 3]}),
    "mlp on images": Small("mlp", (2, 3), {"hidden": [4]}),
    "linear": Small("mlp", (5,), {"hidden": []}),
    "cnn": Small("cnn", (1, 9, 13), {"channels": [2, 3], "hidden": 4}),
    "cnn by width": Small("cnn", (1, 8, 8), {"width": 2, "hidden": 4}),
    "lenet5": Small("lenet5", (1, 24, 18), {"channels": [2, 3], "hidden": [4, 3]}),
    "lenet5 padded": Small(
        "lenet5", (1, 16, 20), {"channels": [2, 3], "hidden": [4, 3], "padding": 2}
    ),
    "lenet5-wide": Small("lenet5-wide", (2, 16, 24), {"channels": [3, 2], "hidden": 4}),
    "vgg9": Small(
        "vgg9",
        (2, 17, 8),
        {"channels": [2, 3, 2, 4, 3, 2], "hidden": [4, 3], "dropout_layout": "none"},
    ),
    "lstm": Small("lstm", (6,), {"embedding": 3, "hidden": 4, "layers": 1}),
    "deep lstm": Small("lstm", (6,), {"embedding": 3, "widths": [4, 2, 3]}),
    "even lstm": Small("lstm", (6,), {"embedding": 3, "hidden": 4, "layers": 2}),
}
"""Networks without normalisation."""

BATCH = {
    "resnet18": Small(
        "resnet18", TALL, {"norm": "batch", "channels": [3, 2, 4, 3], "inner": INNER18}
    ),
    "resnet20": Small("resnet20", TALL, {"norm": "batch", "channels": [2, 5, 9], "inner": INNER20}),
    "resnet20 of one stage": Small(
        "resnet20", TALL, {"norm": "batch", "channels": [3, 3, 4], "inner": INNER20}
    ),
}
"""Networks with batch normalisation."""

GROUP = {
    "resnet18": Small(
        "resnet18",
        TALL,
        {"norm": "group", "groups": 2, "channels": [4, 6, 4, 8], "inner": [4, 6] * 4},
    ),
    "resnet20": Small(
        "resnet20",
        TALL,
        {"norm": "group", "groups": 4, "channels": [8, 16, 24], "inner": [8, 12, 8] * 3},
    ),
}
"""Networks with group normalisation."""


def random_weights(model: Model, seed: int) -> Tensors:
    """Return float64 weights of which none is 0 or 1, so that each one's place matters."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, array in model.weights().items():
        if array.dtype.kind != "f":
            weights[name] = array
        elif name.endswith("running_var"):
            weights[name] = rng.uniform(0.3, 3, array.shape)
        else:
            weights[name] = array.astype(np.float64) + rng.normal(0, 0.3, array.shape)
    return weights


def random_growth(groups: PermutationGroups, seed: int, most: int = 3) -> dict[str, int]:
    """Return a width for each group, larger by up to ``most``."""
    rng = np.random.default_rng(seed)
    return {name: width + int(rng.integers(0, most + 1)) for name, width in groups.widths.items()}


def random_atoms(
    groups: PermutationGroups, widths: Mapping[str, int], seed: int
) -> dict[str, Array]:
    """Return a random assignment of each group's units to ``widths`` atoms."""
    rng = np.random.default_rng(seed)
    return {name: rng.permutation(widths[name])[:width] for name, width in groups.widths.items()}


def tensors(weights: Tensors, kind: torch.dtype = torch.float64) -> dict[str, torch.Tensor]:
    """Return weights as tensors, real numbers in one kind."""
    made = {name: torch.tensor(array) for name, array in weights.items()}
    return {
        name: part.to(kind) if part.is_floating_point() else part for name, part in made.items()
    }


def outputs(
    model: Model,
    weights: Tensors,
    inputs: torch.Tensor,
    kind: torch.dtype = torch.float64,
    *,
    training: bool = False,
) -> tuple[torch.Tensor, Tensors]:
    """Return the logits, and all weights behind the pass, of which training changes statistics."""
    params = tensors(weights, kind)
    model.module.to(kind).train(training)
    with torch.no_grad():
        logits = model.forward(params, inputs.to(kind) if inputs.is_floating_point() else inputs)
    return logits, {name: part.numpy() for name, part in params.items()}


def assert_close(ours: torch.Tensor, theirs: torch.Tensor, tolerance: float) -> None:
    """Check that logits differ by at most a fraction of the largest."""
    assert float((ours - theirs).abs().max()) <= tolerance * float(theirs.abs().max())


def class_atoms(groups: PermutationGroups, seed: int) -> Assignments:
    """Return a permutation of each group's units within their classes; not the identity."""
    rng = np.random.default_rng(seed)
    atoms = {}
    for name, width in groups.widths.items():
        classes, order = groups.unit_classes(name), np.arange(width)
        assert classes is not None
        for each in np.unique(classes):
            own = np.flatnonzero(classes == each)
            order[own] = rng.permutation(own)
        atoms[name] = order
    return atoms


def permuted_perceptron(network: Tensors, first: Array, second: Array) -> Tensors:
    """Return an ``mlp`` of two hidden layers with some of its units, in these orders."""
    return {
        "fc1.weight": network["fc1.weight"][first],
        "fc1.bias": network["fc1.bias"][first],
        "fc2.weight": network["fc2.weight"][second][:, first],
        "fc2.bias": network["fc2.bias"][second],
        "out.weight": network["out.weight"][:, second],
        "out.bias": network["out.bias"],
    }

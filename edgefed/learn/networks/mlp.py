"""A multilayer perceptron for inputs of any shape."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from itertools import pairwise
from math import prod
from typing import Annotated

from pydantic import Field
from torch import nn

from edgefed.errors import DataError
from edgefed.learn.base.permutation_groups import PermutationGroups, combined
from edgefed.learn.networks.base import Network, NetworkSettings, Shape
from edgefed.learn.networks.layer_groups import chain


class MlpSettings(NetworkSettings):
    """Settings of ``mlp``."""

    hidden: Annotated[tuple[Annotated[int, Field(ge=1, le=65536)], ...], Field(max_length=64)] = (
        64,
    )
    """Units of each hidden layer; an empty list gives a linear model."""

    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Fraction of each hidden layer's units that a training step drops."""


def make_mlp(settings: MlpSettings, shape: Shape, classes: int) -> nn.Module:
    """Return fully connected layers with ReLU between them, on flattened inputs."""
    features = prod(shape)
    if features < 1:
        raise DataError(
            "The model mlp needs at least one value in an input, but the inputs are empty.",
            code="model.input",
            hint="check the shape of the data",
        )
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    sizes = (features, *settings.hidden)
    for number, (before, after) in enumerate(pairwise(sizes), start=1):
        layers[f"fc{number}"] = nn.Linear(before, after)
        layers[f"relu{number}"] = nn.ReLU()
        layers[f"dropout{number}"] = nn.Dropout(settings.dropout)
    layers["out"] = nn.Linear(sizes[-1], classes)
    return nn.Sequential(layers)


def mlp_groups(settings: MlpSettings, shape: Shape, classes: int) -> PermutationGroups:
    """Return a group for each hidden layer."""
    del shape, classes
    names = [f"fc{number}" for number in range(1, len(settings.hidden) + 1)]
    layers = chain([(name, 1) for name in (*names, "out")])
    return combined(dict(zip(names, settings.hidden, strict=True)), layers)


def resized_mlp(settings: MlpSettings, widths: Mapping[str, int]) -> MlpSettings:
    """Return the settings for other widths."""
    names = [f"fc{number}" for number in range(1, len(settings.hidden) + 1)]
    return settings.model_copy(update={"hidden": tuple(widths[name] for name in names)})


MLP = Network(
    "mlp",
    "fully connected layers, for inputs of any shape",
    MlpSettings,
    make_mlp,
    groups=mlp_groups,
    resized=resized_mlp,
)

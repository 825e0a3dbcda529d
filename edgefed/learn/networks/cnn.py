"""A small convolutional network for images of 8×8 to 32×32 pixels."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field
from torch import nn

from edgefed.learn.base.permutation_groups import PermutationGroups, combined
from edgefed.learn.networks.base import Network, NetworkSettings, Shape, image_shape
from edgefed.learn.networks.blocks import ConvPoolReLU
from edgefed.learn.networks.layer_groups import chain

Channels = Annotated[int, Field(ge=1, le=4096)]


class CnnSettings(NetworkSettings):
    """Settings of ``cnn``."""

    width: Annotated[int, Field(ge=1, le=1024)] = 16
    """Channels of the first convolution; the second has twice as many."""

    channels: tuple[Channels, Channels] | tuple[()] = ()
    """Channels of both convolutions, in place of ``width``; an empty list leaves it to that."""

    hidden: Annotated[int, Field(ge=1, le=65536)] = 64
    """Units of the fully connected layer."""

    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Fraction of the hidden units that a training step drops."""


def make_cnn(settings: CnnSettings, shape: Shape, classes: int) -> nn.Module:
    """Return two 3×3 convolutions, each halved by pooling, and two fully connected layers."""
    channels, height, width = image_shape("cnn", shape, smallest=4)
    first, second = convolutions(settings)
    return nn.Sequential(
        OrderedDict(
            conv1=ConvPoolReLU(channels, first, 3, padding=1),
            conv2=ConvPoolReLU(first, second, 3, padding=1),
            flatten=nn.Flatten(),
            fc1=nn.Linear(second * (height // 4) * (width // 4), settings.hidden),
            relu3=nn.ReLU(),
            dropout=nn.Dropout(settings.dropout),
            fc2=nn.Linear(settings.hidden, classes),
        )
    )


def convolutions(settings: CnnSettings) -> tuple[int, int]:
    """Return the channels of both convolutions."""
    return settings.channels or (settings.width, 2 * settings.width)


def cnn_groups(settings: CnnSettings, shape: Shape, classes: int) -> PermutationGroups:
    """Return a group for each convolution, and one for the fully connected layer."""
    del classes
    _, height, width = shape
    first, second = convolutions(settings)
    pixels = (height // 4) * (width // 4)
    layers = chain([("conv1", 1), ("conv2", 1), ("fc1", pixels), ("fc2", 1)])
    return combined({"conv1": first, "conv2": second, "fc1": settings.hidden}, layers)


def resized_cnn(settings: CnnSettings, widths: Mapping[str, int]) -> CnnSettings:
    """Return the settings for other widths."""
    channels = widths["conv1"], widths["conv2"]
    return settings.model_copy(update={"channels": channels, "hidden": widths["fc1"]})


CNN = Network(
    "cnn",
    "two 3×3 convolutions, for 8×8 to 32×32 images",
    CnnSettings,
    make_cnn,
    groups=cnn_groups,
    resized=resized_cnn,
)

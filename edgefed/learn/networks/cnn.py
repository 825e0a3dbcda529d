"""A small convolutional network for images of 8×8 to 32×32 pixels."""

from __future__ import annotations

from collections import OrderedDict
from typing import Annotated

from pydantic import Field
from torch import nn

from edgefed.learn.networks.base import Network, NetworkSettings, Shape, image_shape
from edgefed.learn.networks.blocks import ConvPoolReLU


class CnnSettings(NetworkSettings):
    """Settings of ``cnn``."""

    width: Annotated[int, Field(ge=1, le=1024)] = 16
    """Channels of the first convolution; the second has twice as many."""

    hidden: Annotated[int, Field(ge=1, le=65536)] = 64
    """Units of the fully connected layer."""

    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Fraction of the hidden units that a training step drops."""


def make_cnn(settings: CnnSettings, shape: Shape, classes: int) -> nn.Module:
    """Return two 3×3 convolutions, each halved by pooling, and two fully connected layers."""
    channels, height, width = image_shape("cnn", shape, smallest=4)
    first, second = settings.width, 2 * settings.width
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


CNN = Network("cnn", "two 3×3 convolutions, for 8×8 to 32×32 images", CnnSettings, make_cnn)

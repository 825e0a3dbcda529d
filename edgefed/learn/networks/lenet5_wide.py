"""The wide LeNet-5 of the federated mixture of experts: c and 2c channels, one layer of 512 units.

After Reisser, Louizos, Gavves, Welling: Federated Mixture of Experts, 2021; the layout is recovered
from the bytes that its table 1 reports. With 32×32 RGB inputs and 10 classes it has 878,538
parameters; the paper's "LeNet-5(61)" and "LeNet-5(113)" are ``channels = [61, 122]`` with 1,758,050
and ``channels = [113, 226]`` with 3,545,706. With 28×28 inputs and 62 classes it has 608,702.
``channels = [20, 50]`` and ``hidden = 500`` are the LeNet of Caffe, 431,080 parameters on MNIST.
"""

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


class WideLenet5Settings(NetworkSettings):
    """Settings of ``lenet5-wide``."""

    channels: tuple[Channels, Channels] = (32, 64)
    """Channels of the first and of the second convolution."""

    hidden: Annotated[int, Field(ge=1, le=65536)] = 512
    """Units of the fully connected layer."""


def make_wide_lenet5(settings: WideLenet5Settings, shape: Shape, classes: int) -> nn.Module:
    """Return two 5×5 convolutions, each halved by pooling, and two fully connected layers."""
    channels, height, width = image_shape("lenet5-wide", shape, smallest=16)
    first, second = settings.channels
    rows, columns = _pooled(height, width)
    return nn.Sequential(
        OrderedDict(
            conv1=ConvPoolReLU(channels, first, 5),
            conv2=ConvPoolReLU(first, second, 5),
            flatten=nn.Flatten(),
            fc1=nn.Linear(second * rows * columns, settings.hidden),
            relu3=nn.ReLU(),
            fc2=nn.Linear(settings.hidden, classes),
        )
    )


def _pooled(height: int, width: int) -> tuple[int, int]:
    """Return the height and width of an image behind both convolutions."""
    return ((height - 4) // 2 - 4) // 2, ((width - 4) // 2 - 4) // 2


def wide_lenet5_groups(
    settings: WideLenet5Settings, shape: Shape, classes: int
) -> PermutationGroups:
    """Return a group for each convolution, and one for the fully connected layer."""
    del classes
    rows, columns = _pooled(*shape[1:])
    layers = chain([("conv1", 1), ("conv2", 1), ("fc1", rows * columns), ("fc2", 1)])
    first, second = settings.channels
    return combined({"conv1": first, "conv2": second, "fc1": settings.hidden}, layers)


def resized_wide_lenet5(
    settings: WideLenet5Settings, widths: Mapping[str, int]
) -> WideLenet5Settings:
    """Return the settings for other widths."""
    channels = widths["conv1"], widths["conv2"]
    return settings.model_copy(update={"channels": channels, "hidden": widths["fc1"]})


LENET5_WIDE = Network(
    "lenet5-wide",
    "LeNet-5 with 32 or more channels",
    WideLenet5Settings,
    make_wide_lenet5,
    groups=wide_lenet5_groups,
    resized=resized_wide_lenet5,
)

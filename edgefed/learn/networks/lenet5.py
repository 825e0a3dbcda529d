"""LeNet-5 as federated learning papers use it: ReLU, max-pooling, FC 120, 84.

After LeCun, Bottou, Bengio, Haffner: Gradient-Based Learning Applied to Document Recognition, 1998.
For 28×28 inputs and 62 classes it has 48,846 parameters without padding, 66,126 with padding 2.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field
from torch import nn

from edgefed.learn.base.permutation_groups import PermutationGroups, combined
from edgefed.learn.networks.base import Network, NetworkSettings, Shape, image_shape
from edgefed.learn.networks.blocks import ConvPoolReLU
from edgefed.learn.networks.layer_groups import chain

Units = Annotated[int, Field(ge=1, le=4096)]


class Lenet5Settings(NetworkSettings):
    """Settings of ``lenet5``."""

    padding: Literal[0, 2] = 0
    """Pixels of zeros around the input of the first convolution."""

    channels: tuple[Units, Units] = (6, 16)
    """Channels of the first and of the second convolution."""

    hidden: tuple[Units, Units] = (120, 84)
    """Units of the first and of the second fully connected layer."""


GROUPS = ("conv1", "conv2", "fc1", "fc2")
"""The layers whose units can be permuted."""


def make_lenet5(settings: Lenet5Settings, shape: Shape, classes: int) -> nn.Module:
    """Return two 5×5 convolutions, each halved by pooling, and three fully connected layers."""
    smallest = 16 - 2 * settings.padding
    channels, height, width = image_shape("lenet5", shape, smallest)
    rows, columns = (_after(size, settings.padding) for size in (height, width))
    first, second = settings.channels
    third, fourth = settings.hidden
    return nn.Sequential(
        OrderedDict(
            conv1=ConvPoolReLU(channels, first, 5, settings.padding),
            conv2=ConvPoolReLU(first, second, 5),
            flatten=nn.Flatten(),
            fc1=nn.Linear(second * rows * columns, third),
            relu3=nn.ReLU(),
            fc2=nn.Linear(third, fourth),
            relu4=nn.ReLU(),
            fc3=nn.Linear(fourth, classes),
        )
    )


def _after(size: int, padding: int) -> int:
    """Return the side after both convolutions and poolings of ``size`` pixels."""
    return ((size + 2 * padding - 4) // 2 - 4) // 2


def lenet5_groups(settings: Lenet5Settings, shape: Shape, classes: int) -> PermutationGroups:
    """Return a group for each layer but the last."""
    del classes
    rows, columns = (_after(size, settings.padding) for size in shape[1:])
    layers = chain([("conv1", 1), ("conv2", 1), ("fc1", rows * columns), ("fc2", 1), ("fc3", 1)])
    sizes = (*settings.channels, *settings.hidden)
    return combined(dict(zip(GROUPS, sizes, strict=True)), layers)


def resized_lenet5(settings: Lenet5Settings, widths: Mapping[str, int]) -> Lenet5Settings:
    """Return the settings for other widths."""
    sizes = tuple(widths[name] for name in GROUPS)
    return settings.model_copy(update={"channels": sizes[:2], "hidden": sizes[2:]})


LENET5 = Network(
    "lenet5",
    "LeNet-5 with ReLU and max-pooling",
    Lenet5Settings,
    make_lenet5,
    groups=lenet5_groups,
    resized=resized_lenet5,
)

"""LeNet-5 as federated learning papers use it: ReLU, max-pooling, FC 120, 84.

After LeCun, Bottou, Bengio, Haffner: Gradient-Based Learning Applied to Document Recognition, 1998.
For 28×28 inputs and 62 classes it has 48,846 parameters without padding, 66,126 with padding 2.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal

from torch import nn

from edgefed.learn.networks.base import Network, NetworkSettings, Shape, image_shape
from edgefed.learn.networks.blocks import ConvPoolReLU


class Lenet5Settings(NetworkSettings):
    """Settings of ``lenet5``."""

    padding: Literal[0, 2] = 0
    """Pixels of zeros around the input of the first convolution."""


def make_lenet5(settings: Lenet5Settings, shape: Shape, classes: int) -> nn.Module:
    """Return two 5×5 convolutions, each halved by pooling, and three fully connected layers."""
    smallest = 16 - 2 * settings.padding
    channels, height, width = image_shape("lenet5", shape, smallest)
    rows, columns = (_after(size, settings.padding) for size in (height, width))
    return nn.Sequential(
        OrderedDict(
            conv1=ConvPoolReLU(channels, 6, 5, settings.padding),
            conv2=ConvPoolReLU(6, 16, 5),
            flatten=nn.Flatten(),
            fc1=nn.Linear(16 * rows * columns, 120),
            relu3=nn.ReLU(),
            fc2=nn.Linear(120, 84),
            relu4=nn.ReLU(),
            fc3=nn.Linear(84, classes),
        )
    )


def _after(size: int, padding: int) -> int:
    """Return what both convolutions and poolings leave of ``size`` pixels."""
    return ((size + 2 * padding - 4) // 2 - 4) // 2


LENET5 = Network("lenet5", "LeNet-5 with ReLU and max-pooling", Lenet5Settings, make_lenet5)

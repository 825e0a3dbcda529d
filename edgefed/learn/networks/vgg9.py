"""VGG-9: six 3×3 convolutions and three fully connected layers, without normalisation.

The network of two papers that apply dropout at different places: Yoon, Shin, Hwang, Yang: FedMix,
ICLR 2021, and Wang, Yurochkin, Sun, Papailiopoulos, Khazaeni: Federated Learning with Matched
Averaging, ICLR 2020. With 32×32 RGB inputs it has 3,491,530 parameters for 10 classes, 3,537,700
for 100.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal

from torch import nn

from edgefed.learn.networks.base import Network, NetworkSettings, Shape, image_shape


class Vgg9Settings(NetworkSettings):
    """Settings of ``vgg9``."""

    dropout_layout: Literal["fedmix", "fedma", "none"] = "fedmix"
    """Where dropout is applied. ``fedmix``: a tenth of the values after the second and the third
    pooling and before the last layer; ``fedma``: a twentieth of the channels after the second
    pooling, and a tenth of the values before the first and the last fully connected layer."""


def make_vgg9(settings: Vgg9Settings, shape: Shape, classes: int) -> nn.Module:
    """Return convolutions of 32, 64, 128, 128, 256 and 256 channels, and layers of 512 and 512.

    The image is halved by pooling after each pair of convolutions.
    """
    channels, height, width = image_shape("vgg9", shape, smallest=8)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for block, (middle, last) in enumerate(((32, 64), (128, 128), (256, 256)), start=1):
        layers |= _block(block, channels, middle, last)
        layers |= _dropout(settings.dropout_layout, f"pool{block}")
        channels = last
    features = channels * (height // 8) * (width // 8)
    layers["flatten"] = nn.Flatten()
    for number, (before, after) in enumerate(((features, 512), (512, 512)), start=1):
        layers[f"fc{number}"] = nn.Linear(before, after)
        layers[f"relu{6 + number}"] = nn.ReLU()
    layers |= _dropout(settings.dropout_layout, "fc2")
    layers["fc3"] = nn.Linear(512, classes)
    return nn.Sequential(layers)


def _block(number: int, before: int, middle: int, after: int) -> OrderedDict[str, nn.Module]:
    """Return two convolutions and a pooling; pooling before ReLU gives the same, quicker."""
    first, second = 2 * number - 1, 2 * number
    return OrderedDict(
        {
            f"conv{first}": nn.Conv2d(before, middle, 3, padding=1),
            f"relu{first}": nn.ReLU(),
            f"conv{second}": nn.Conv2d(middle, after, 3, padding=1),
            f"pool{number}": nn.MaxPool2d(2),
            f"relu{second}": nn.ReLU(),
        }
    )


def _dropout(layout: str, after: str) -> OrderedDict[str, nn.Module]:
    """Return the dropout that a layout has after a layer, if any."""
    if layout == "fedma" and after == "pool2":
        return OrderedDict({"dropout_pool2": nn.Dropout2d(0.05)})
    places = {"fedmix": ("pool2", "pool3", "fc2"), "fedma": ("pool3", "fc2")}
    if after in places.get(layout, ()):
        return OrderedDict({f"dropout_{after}": nn.Dropout(0.1)})
    return OrderedDict()


VGG9 = Network("vgg9", "VGG-9 without normalisation, for 32×32 images", Vgg9Settings, make_vgg9)

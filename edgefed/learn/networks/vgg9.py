"""VGG-9: six 3×3 convolutions and three fully connected layers, without normalisation.

The network of two papers that apply dropout at different places: Yoon, Shin, Hwang, Yang: FedMix,
ICLR 2021, and Wang, Yurochkin, Sun, Papailiopoulos, Khazaeni: Federated Learning with Matched
Averaging, ICLR 2020. With 32×32 RGB inputs it has 3,491,530 parameters for 10 classes, 3,537,700
for 100.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field
from torch import nn

from edgefed.learn.base.permutation_groups import PermutationGroups, combined
from edgefed.learn.networks.base import Network, NetworkSettings, Shape, image_shape
from edgefed.learn.networks.layer_groups import chain

Units = Annotated[int, Field(ge=1, le=4096)]


class Vgg9Settings(NetworkSettings):
    """Settings of ``vgg9``."""

    channels: tuple[Units, Units, Units, Units, Units, Units] = (32, 64, 128, 128, 256, 256)
    """Channels of each convolution."""

    hidden: tuple[Units, Units] = (512, 512)
    """Units of the first and of the second fully connected layer."""

    dropout_layout: Literal["fedmix", "fedma", "none"] = "fedmix"
    """Where dropout is applied. ``fedmix``: a tenth of the values after the second and the third
    pooling and before the last layer; ``fedma``: a twentieth of the channels after the second
    pooling, and a tenth of the values before the first and the last fully connected layer."""


def make_vgg9(settings: Vgg9Settings, shape: Shape, classes: int) -> nn.Module:
    """Return six convolutions and three fully connected layers.

    The image is halved by pooling after each pair of convolutions.
    """
    channels, height, width = image_shape("vgg9", shape, smallest=8)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    pairs = zip(settings.channels[::2], settings.channels[1::2], strict=True)
    for block, (middle, last) in enumerate(pairs, start=1):
        layers |= _block(block, channels, middle, last)
        layers |= _dropout(settings.dropout_layout, f"pool{block}")
        channels = last
    features = channels * (height // 8) * (width // 8)
    layers["flatten"] = nn.Flatten()
    sizes = (features, *settings.hidden)
    for number, (before, after) in enumerate(pairwise(sizes), start=1):
        layers[f"fc{number}"] = nn.Linear(before, after)
        layers[f"relu{6 + number}"] = nn.ReLU()
    layers |= _dropout(settings.dropout_layout, "fc2")
    layers["fc3"] = nn.Linear(sizes[-1], classes)
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


GROUPS = ("conv1", "conv2", "conv3", "conv4", "conv5", "conv6", "fc1", "fc2")
"""The layers whose units can be permuted."""


def vgg9_groups(settings: Vgg9Settings, shape: Shape, classes: int) -> PermutationGroups:
    """Return a group for each layer but the last."""
    del classes
    pixels = (shape[1] // 8) * (shape[2] // 8)
    layers = chain([(name, pixels if name == "fc1" else 1) for name in (*GROUPS, "fc3")])
    sizes = (*settings.channels, *settings.hidden)
    return combined(dict(zip(GROUPS, sizes, strict=True)), layers)


def resized_vgg9(settings: Vgg9Settings, widths: Mapping[str, int]) -> Vgg9Settings:
    """Return the settings for other widths."""
    sizes = tuple(widths[name] for name in GROUPS)
    return settings.model_copy(update={"channels": sizes[:6], "hidden": sizes[6:]})


VGG9 = Network(
    "vgg9",
    "VGG-9 without normalisation, for 32×32 images",
    Vgg9Settings,
    make_vgg9,
    groups=vgg9_groups,
    resized=resized_vgg9,
)

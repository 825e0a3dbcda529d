"""ResNet-20 for small images, with group normalisation.

He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, CVPR 2016, section 4.2, with
shortcuts A: where a block halves the image, its input is subsampled and the new channels are zero.
Federated learning replaces batch normalisation by group normalisation with 2 groups (Reddi et al.:
Adaptive Federated Optimization, ICLR 2021). With RGB inputs it has 275,572 parameters for 100
classes and 269,722 for 10, with either normalisation.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Annotated, Literal

import torch
from pydantic import Field, field_validator
from torch import nn
from torch.nn import functional

from edgefed.learn.base.permutation_groups import PermutationGroups, Segment, Segments, combined
from edgefed.learn.networks.base import Network, NetworkSettings, Shape, image_shape
from edgefed.learn.networks.layer_groups import affine, norm_groups
from edgefed.learn.networks.norms import NormName, check_groups, kaiming, norm_layer

Units = Annotated[int, Field(ge=1, le=4096)]


class Resnet20Settings(NetworkSettings):
    """Settings of ``resnet20``."""

    norm: NormName = "group"
    """``group``: group normalisation; ``batch``: batch normalisation, whose running statistics are
    averaged like weights."""

    groups: Literal[1, 2, 4, 8, 16] = 2
    """With ``norm = "group"``: groups of channels, which divide all widths."""

    channels: tuple[Units, Units, Units] = (16, 32, 64)
    """Channels of each stage; none has fewer than the one before."""

    inner: tuple[Units, Units, Units, Units, Units, Units, Units, Units, Units] = (
        *(16, 16, 16),
        *(32, 32, 32),
        *(64, 64, 64),
    )
    """Channels between the two convolutions of each block."""

    @field_validator("channels")
    @classmethod
    def _rising(cls, channels: tuple[int, int, int]) -> tuple[int, int, int]:
        """Check that shortcuts lose no channel."""
        if list(channels) != sorted(channels):
            raise ValueError("must not fall from stage to stage")
        return channels


class Block(nn.Module):
    """Two 3×3 convolutions around which the input is added, padded with channels of zeros.

    Args:
        before, inner, after: channels of the input, between the convolutions, and of the output.
        stride: 2 to halve the image.
        norm: makes a normalisation layer of a number of channels.
    """

    def __init__(
        self, before: int, inner: int, after: int, stride: int, norm: Callable[[int], nn.Module]
    ) -> None:
        super().__init__()
        self.stride = stride
        self.added = after - before
        self.conv1 = nn.Conv2d(before, inner, 3, stride, padding=1, bias=False)
        self.norm1 = norm(inner)
        self.conv2 = nn.Conv2d(inner, after, 3, padding=1, bias=False)
        self.norm2 = norm(after)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return (batch, after, height / stride, width / stride)."""
        hidden = functional.relu(self.norm1(self.conv1(inputs)))
        changed: torch.Tensor = self.norm2(self.conv2(hidden))
        kept = inputs if self.stride == 1 else inputs[:, :, ::2, ::2]
        if self.added:
            half = self.added // 2
            kept = functional.pad(kept, (0, 0, 0, 0, half, self.added - half))
        return functional.relu(changed + kept)


BLOCKS = tuple((stage, block) for stage in (1, 2, 3) for block in (1, 2, 3))
"""Numbers of the stage and of the block in it, from the first block to the last."""


def make_resnet20(settings: Resnet20Settings, shape: Shape, classes: int) -> nn.Module:
    """Return three stages of three blocks, and a linear layer."""
    channels, _, _ = image_shape("resnet20", shape, smallest=4)
    if settings.norm == "group":
        check_groups("resnet20", settings.groups, (*settings.channels, *settings.inner))
    norm = norm_layer(settings.norm, settings.groups)
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv1=nn.Conv2d(channels, settings.channels[0], 3, padding=1, bias=False),
        norm1=norm(settings.channels[0]),
        relu1=nn.ReLU(),
    )
    before = settings.channels[0]
    for (stage, block), inner in zip(BLOCKS, settings.inner, strict=True):
        after, stride = settings.channels[stage - 1], 2 if stage > 1 and block == 1 else 1
        layers[f"stage{stage}block{block}"] = Block(before, inner, after, stride, norm)
        before = after
    layers |= {"pool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten()}
    layers["fc"] = nn.Linear(before, classes)
    module = nn.Sequential(layers)
    kaiming(module)
    return module


def resnet20_groups(settings: Resnet20Settings, shape: Shape, classes: int) -> PermutationGroups:
    """Return a group for each stage and one inside each block.

    A stage adds channels on both sides of those of the stage before, which pass its shortcuts. Its
    group consists of the added ones; a stage that adds none has no group.
    """
    del shape, classes
    running, widths = settings.norm == "batch", _widths(settings)
    stream: Segments = (Segment("stage1"),)
    layers = [affine("conv1", stream, bias=False, norm="norm1", running=running)]
    for stage, block in BLOCKS:
        name, before = f"stage{stage}block{block}", stream
        group = f"stage{stage}"
        if stage > 1 and block == 1 and group in widths:
            stream = (Segment(group, half="low"), *before, Segment(group, half="high"))
        inner: Segments = (Segment(name),)
        for number, outputs, inputs in ((1, inner, before), (2, stream, inner)):
            conv, norm = f"{name}.conv{number}", f"{name}.norm{number}"
            layers.append(affine(conv, outputs, inputs, bias=False, norm=norm, running=running))
    layers.append(affine("fc", (), stream))
    return combined(widths, layers, norm_groups(settings.norm, settings.groups, layers))


def _widths(settings: Resnet20Settings) -> dict[str, int]:
    """Return the units of each group."""
    first, second, third = settings.channels
    stages = {"stage1": first, "stage2": second - first, "stage3": third - second}
    blocks = (f"stage{stage}block{block}" for stage, block in BLOCKS)
    widths = {**stages, **dict(zip(blocks, settings.inner, strict=True))}
    return {name: width for name, width in widths.items() if width}


def resized_resnet20(settings: Resnet20Settings, widths: Mapping[str, int]) -> Resnet20Settings:
    """Return the settings for other widths."""
    channels = accumulate(widths.get(f"stage{stage}", 0) for stage in (1, 2, 3))
    inner = (widths[f"stage{stage}block{block}"] for stage, block in BLOCKS)
    return settings.model_copy(update={"channels": tuple(channels), "inner": tuple(inner)})


RESNET20 = Network(
    "resnet20",
    "ResNet-20 with group normalisation, for 32×32 images",
    Resnet20Settings,
    make_resnet20,
    groups=resnet20_groups,
    resized=resized_resnet20,
)

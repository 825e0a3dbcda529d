"""ResNet-18 for small images: torchvision's, with a first layer that keeps their size.

He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, CVPR 2016. The first convolution
is 3×3 with stride 1 instead of 7×7 with stride 2, and no max-pooling follows. With RGB inputs and
10 classes it has 11,173,962 parameters, with either normalisation.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import nn

from edgefed.learn.base.permutation_groups import PermutationGroups, Segment, combined
from edgefed.learn.networks.base import Network, NetworkSettings, Shape, image_shape
from edgefed.learn.networks.layer_groups import Described, affine, norm_groups
from edgefed.learn.networks.norms import NormName, check_groups, kaiming, norm_layer

Units = Annotated[int, Field(ge=1, le=4096)]


class Resnet18Settings(NetworkSettings):
    """Settings of ``resnet18``."""

    norm: NormName = "batch"
    """``batch``: batch normalisation, whose running statistics are averaged like weights;
    ``group``: group normalisation, which suits skewed labels better."""

    groups: Literal[1, 2, 4, 8, 16, 32, 64] = 2
    """With ``norm = "group"``: groups of channels, which divide all widths."""

    channels: tuple[Units, Units, Units, Units] = (64, 128, 256, 512)
    """Channels of each stage."""

    inner: tuple[Units, Units, Units, Units, Units, Units, Units, Units] = (
        *(64, 64),
        *(128, 128),
        *(256, 256),
        *(512, 512),
    )
    """Channels between the two convolutions of each block."""


def make_resnet18(settings: Resnet18Settings, shape: Shape, classes: int) -> nn.Module:
    """Return the network; its weights bear torchvision's names."""
    # Importing torchvision takes seconds, which no other model should pay for.
    from torchvision.models.resnet import BasicBlock, ResNet

    channels, _, _ = image_shape("resnet18", shape, smallest=4)
    norm = norm_layer(settings.norm, settings.groups)
    if settings.norm == "group":
        check_groups("resnet18", settings.groups, (*settings.channels, *settings.inner))
    defaults = Resnet18Settings()
    resized = (settings.channels, settings.inner) != (defaults.channels, defaults.inner)
    with torch.device("meta") if resized else nullcontext():
        module: nn.Module = ResNet(BasicBlock, [2, 2, 2, 2], num_classes=classes, norm_layer=norm)
    module.maxpool = nn.Identity()
    if resized:
        _resize(module, settings, channels, classes)
    else:
        module.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        kaiming(module.conv1)
    return module


NARROW = 8
"""Channels below which oneDNN pads the input of a 1×1 convolution."""


class NarrowShortcut(nn.Conv2d):
    """A 1×1 convolution that takes every second pixel first, and then has stride 1.

    The values are those of stride 2. With stride 2, channels last, fewer than 8 input channels and
    a processor without AVX-512, oneDNN's backward pass writes beyond its buffer (torch 2.14).
    """

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the products of every second pixel of ``[samples, channels, rows, columns]``."""
        rows, columns = self.stride
        return nn.functional.conv2d(images[:, :, ::rows, ::columns], self.weight, self.bias)


BLOCKS = tuple(f"layer{stage}.{block}" for stage in (1, 2, 3, 4) for block in (0, 1))
"""Names of the blocks, from the first to the last."""


def _resize(module: nn.Module, settings: Resnet18Settings, channels: int, classes: int) -> None:
    """Replace all layers by those of the settings' widths."""
    norm = norm_layer(settings.norm, settings.groups)
    before = settings.channels[0]
    module.conv1 = nn.Conv2d(channels, before, 3, padding=1, bias=False)
    module.bn1 = norm(before)
    for number, (name, inner) in enumerate(zip(BLOCKS, settings.inner, strict=True)):
        block, after = module.get_submodule(name), settings.channels[number // 2]
        stride = 2 if number in (2, 4, 6) else 1
        block.conv1 = nn.Conv2d(before, inner, 3, stride, padding=1, bias=False)
        block.conv2 = nn.Conv2d(inner, after, 3, padding=1, bias=False)
        block.bn1, block.bn2 = norm(inner), norm(after)
        if stride == 2:
            kind = NarrowShortcut if before < NARROW else nn.Conv2d
            shortcut = kind(before, after, 1, stride, bias=False)
            block.downsample = nn.Sequential(shortcut, norm(after))
        before = after
    module.fc = nn.Linear(before, classes)
    kaiming(module)


def resnet18_groups(settings: Resnet18Settings, shape: Shape, classes: int) -> PermutationGroups:
    """Return a group for each stage, tied by its shortcuts, and one inside each block."""
    del shape, classes
    running = settings.norm == "batch"

    def conv(name: str, norm: str, outputs: str, inputs: str = "") -> Described:
        before = (Segment(inputs),) if inputs else ()
        return affine(name, (Segment(outputs),), before, bias=False, norm=norm, running=running)

    layers = [conv("conv1", "bn1", "stage1")]
    before = "stage1"
    for number, name in enumerate(BLOCKS):
        after = f"stage{number // 2 + 1}"
        layers.append(conv(f"{name}.conv1", f"{name}.bn1", name, before))
        layers.append(conv(f"{name}.conv2", f"{name}.bn2", after, name))
        if after != before:
            layers.append(conv(f"{name}.downsample.0", f"{name}.downsample.1", after, before))
        before = after
    layers.append(affine("fc", (), (Segment(before),)))
    stages = {f"stage{stage}": width for stage, width in enumerate(settings.channels, start=1)}
    widths = {**stages, **dict(zip(BLOCKS, settings.inner, strict=True))}
    return combined(widths, layers, norm_groups(settings.norm, settings.groups, layers))


def resized_resnet18(settings: Resnet18Settings, widths: Mapping[str, int]) -> Resnet18Settings:
    """Return the settings for other widths."""
    channels = tuple(widths[f"stage{stage}"] for stage in (1, 2, 3, 4))
    inner = tuple(widths[name] for name in BLOCKS)
    return settings.model_copy(update={"channels": channels, "inner": inner})


RESNET18 = Network(
    "resnet18",
    "ResNet-18 with a first layer for small images",
    Resnet18Settings,
    make_resnet18,
    groups=resnet18_groups,
    resized=resized_resnet18,
)

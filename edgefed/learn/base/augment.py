"""Augmentation: random crops and flips of a batch of images, pure in a seeded generator.

The usual augmentation of CIFAR training: pad the image, crop it at a random place to its previous
size, and flip it left to right with probability ½. Torchvision's transforms, which follow on these,
are in ``image_transforms``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch.nn import functional

from edgefed.errors import DataError
from edgefed.learn.base.image_transforms import ImageTransforms, check_transforms

LARGE = 16384
"""Values of an image that a CPU copies by itself; smaller ones are faster together."""


@dataclass(frozen=True)
class Augment:
    """The augmentation of each image of a training batch.

    Attributes:
        padding: pixels put around the image before a random piece of the old size is cut out; 0
            for no crop. CIFAR training uses 4.
        fill: value of those pixels: ``zeros``, which is the mean of normalised inputs, or
            ``reflect``, the image mirrored at its edge.
        flip: whether half of the images, drawn at random, are mirrored left to right.
        transforms: torchvision's transforms, applied afterwards; None for none.
    """

    padding: int = 0
    fill: Literal["zeros", "reflect"] = "zeros"
    flip: bool = False
    transforms: ImageTransforms | None = None


@dataclass(frozen=True)
class AugmentationDraws:
    """The random draws of a batch, on the device of its images.

    Attributes:
        rows, columns: int64 (batch,): where the piece begins in the padded image.
        flips: bool (batch,): which images are mirrored.
    """

    rows: torch.Tensor
    columns: torch.Tensor
    flips: torch.Tensor


def check_augment(augment: Augment, shape: tuple[int, ...]) -> None:
    """Check that inputs of ``shape`` can be augmented.

    Raises:
        DataError: they are not images, padding is negative or more than reflection can fill, or
            their channels have no colours to change.
    """
    if augment.transforms is not None:
        check_transforms(augment.transforms, shape)
    if len(shape) != 3:
        text = "×".join(str(size) for size in shape) or "a single number"
        raise DataError(
            f"Only images (channels×height×width) can be cropped or flipped, not inputs of {text}.",
            code="augment.input",
            hint="remove crop and flip from the recipe's [training] and [data] tables",
        )
    most = min(shape[1:]) - 1 if augment.fill == "reflect" else max(shape[1:])
    if not 0 <= augment.padding <= most:
        raise DataError(
            f"Images of {shape[1]}×{shape[2]} pixels cannot be padded by {augment.padding}.",
            code="augment.padding",
            hint=f"choose a padding from 0 to {most}",
        )


def draw(augment: Augment, count: int, generator: torch.Generator) -> AugmentationDraws:
    """Draw the crops and flips of ``count`` images.

    All values are drawn, used or not, and on the CPU, from which the caller moves them: a crop is
    the same with flips and without, and on every device.
    """
    rows, columns = torch.randint(2 * augment.padding + 1, (2, count), generator=generator)
    flips = torch.randint(2, (count,), generator=generator).bool()
    return AugmentationDraws(rows, columns, flips & augment.flip)


def augmented(
    augment: Augment,
    inputs: torch.Tensor,
    draws: AugmentationDraws,
    neutral: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the images (batch, channels, height, width), cropped and flipped as drawn.

    Args:
        augment: the settings of the crop.
        inputs: a model's inputs, or uint8 images.
        draws: one for each image.
        neutral: the pixel (channels or 1, 1, 1) that ``zeros`` stands for; None for zeros.
    """
    padded = _padded(augment, inputs, neutral)
    if inputs.device.type == "cpu" and inputs[:1].numel() >= LARGE:
        return _cut(padded, torch.empty_like(inputs), draws)
    return _gathered(padded, inputs.shape[2:], draws)


def _cut(padded: torch.Tensor, into: torch.Tensor, draws: AugmentationDraws) -> torch.Tensor:
    """Return each image's piece, copied image by image; several times faster for large images."""
    height, width = into.shape[2:]
    places = torch.stack([draws.rows, draws.columns, draws.flips.long()], dim=1).tolist()
    for number, (row, column, flip) in enumerate(places):
        piece = padded[number, :, row : row + height, column : column + width]
        into[number] = piece.flip(-1) if flip else piece
    return into


def _gathered(padded: torch.Tensor, size: Sequence[int], draws: AugmentationDraws) -> torch.Tensor:
    """Return each image's piece, by one gather of all pixels."""
    device, (height, width) = padded.device, size
    down = torch.arange(height, device=device)
    across = torch.arange(width, device=device)
    rows = draws.rows[:, None] + down
    columns = draws.columns[:, None] + torch.where(draws.flips[:, None], across.flip(0), across)
    which = torch.arange(len(padded), device=device)[:, None, None]
    pixels = padded.permute(0, 2, 3, 1)
    taken = pixels[which, rows[:, :, None], columns[:, None, :]]
    return taken.permute(0, 3, 1, 2).contiguous()


def _padded(augment: Augment, inputs: torch.Tensor, neutral: torch.Tensor | None) -> torch.Tensor:
    """Return the images with padding on all four sides."""
    sides = (augment.padding,) * 4
    if not augment.padding:
        return inputs
    if augment.fill == "reflect":
        return functional.pad(inputs, sides, mode="reflect")
    if neutral is None:
        return functional.pad(inputs, sides)
    (count, channels, height, width), edge = inputs.shape, augment.padding
    size = (height + 2 * edge, width + 2 * edge)
    one = neutral.to(inputs.dtype).expand(1, channels, *size)
    one = one.contiguous(memory_format=torch.channels_last)
    padded = torch.empty_like(one.expand(count, -1, -1, -1), memory_format=torch.channels_last)
    padded.copy_(one)
    padded[:, :, edge : edge + height, edge : edge + width] = inputs
    return padded

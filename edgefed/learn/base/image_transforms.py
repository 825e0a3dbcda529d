"""Augmentation by torchvision.transforms.v2: each image by itself, pure in its own seed.

The transforms and their draws are torchvision's. They take uint8 images, before pixels become a
model's inputs. torchvision draws from torch's global generator, which is therefore seeded for each
transform of each image and put back at the end: a draw depends neither on the other transforms nor
on the other images of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch

from edgefed.errors import DataError
from edgefed.seeds import derive

Transform = Callable[[torch.Tensor], torch.Tensor]
"""From one uint8 image (1, channels, height, width) to another."""

COLOUR_CHANNELS = (1, 3)
"""Numbers of channels whose colours can be changed: grey, and red, green and blue."""

CROP_SIDES = (3 / 4, 4 / 3)
"""Ratio of a crop's width to its height, as torchvision has it."""


@dataclass(frozen=True)
class ImageTransforms:
    """The transforms of each image; see the recipe's images section.

    Attributes:
        resized_crop: least share of the area that a random crop keeps; 0 for no crop.
        flip: whether half of the images, drawn at random, are mirrored left to right.
        rand_augment: number of RandAugment's operations; 0 for none.
        magnitude: strength of those operations.
        brightness, contrast, saturation, hue: how far colours change; 0 for no change.
        erase: probability with which a rectangle is erased.
    """

    resized_crop: float = 0.0
    flip: bool = False
    rand_augment: int = 0
    magnitude: int = 9
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0
    erase: float = 0.0

    @property
    def colours(self) -> tuple[float, float, float, float]:
        """The arguments of torchvision's ``ColorJitter``, in their order."""
        return (self.brightness, self.contrast, self.saturation, self.hue)

    @property
    def wanted(self) -> bool:
        """Whether they do anything."""
        geometry = self.resized_crop > 0 or self.flip or self.erase > 0
        return geometry or self.rand_augment > 0 or any(self.colours)


def check_transforms(transforms: ImageTransforms, shape: tuple[int, ...]) -> None:
    """Check that inputs of ``shape`` can be transformed.

    Raises:
        DataError: they are not images, or have no colours to change.
    """
    if len(shape) != 3:
        text = "×".join(str(size) for size in shape) or "a single number"
        raise DataError(
            f"Only images (channels×height×width) can be augmented, not inputs of {text}.",
            code="augment.input",
            hint="remove everything but mean and std from the recipe's [images] table",
        )
    changed = transforms.rand_augment > 0 or any(transforms.colours)
    if changed and shape[0] not in COLOUR_CHANNELS:
        raise DataError(
            f"The colours of images of {shape[0]} channels cannot be changed.",
            code="augment.colours",
            hint="remove brightness, contrast, saturation, hue and rand_augment from [images]",
        )


def transformed(
    transforms: ImageTransforms,
    images: torch.Tensor,
    seeds: Sequence[int],
    neutral: torch.Tensor,
) -> torch.Tensor:
    """Return uint8 images (batch, channels, height, width) of the same shape, transformed.

    Args:
        transforms: applied to each image.
        images: one for each seed.
        seeds: of each image's draws.
        neutral: the pixel (channels or 1, 1, 1) that an erased rectangle is filled with.
    """
    height, width = images.shape[-2:]
    steps = _steps(transforms, (height, width), tuple(neutral.flatten().tolist()))
    done = torch.empty_like(images)
    with torch.random.fork_rng(devices=[]):
        for number, seed in enumerate(seeds):
            done[number : number + 1] = _one(steps, images[number : number + 1], seed)
    return done


def _one(steps: Sequence[tuple[str, Transform]], image: torch.Tensor, seed: int) -> torch.Tensor:
    for name, transform in steps:
        torch.default_generator.manual_seed(derive(seed, name))
        image = transform(image)
    return image


@lru_cache(maxsize=16)
def _steps(
    transforms: ImageTransforms, size: tuple[int, int], neutral: tuple[int, ...]
) -> tuple[tuple[str, Transform], ...]:
    """Return torchvision's transforms in their order, each with the name that its seeds have."""
    return tuple(_made(transforms, size, neutral))


def _made(
    wanted: ImageTransforms, size: tuple[int, int], neutral: tuple[int, ...]
) -> Iterator[tuple[str, Transform]]:
    from torchvision.transforms import v2

    if wanted.resized_crop:
        yield "resized_crop", _resized_crop(wanted.resized_crop, size)
    if wanted.flip:
        yield "flip", v2.RandomHorizontalFlip()
    if wanted.rand_augment:
        yield "rand_augment", v2.RandAugment(wanted.rand_augment, wanted.magnitude)
    if any(wanted.colours):
        yield "colours", v2.ColorJitter(*wanted.colours)
    if wanted.erase:
        yield "erase", v2.RandomErasing(wanted.erase, value=[float(value) for value in neutral])


def _resized_crop(least: float, size: tuple[int, int]) -> Transform:
    """Return torchvision's ``RandomResizedCrop``, with the same draws and the same pixels.

    It takes half the time: torchvision's kernels are fast only where an image's channels lie side
    by side in memory, and those of a piece of an image do not until it is copied.
    """
    from torchvision.transforms import v2

    def cropped(image: torch.Tensor) -> torch.Tensor:
        place = v2.RandomResizedCrop.get_params(image, (least, 1.0), CROP_SIDES)
        piece = v2.functional.crop(image, *place)
        together = piece.contiguous(memory_format=torch.channels_last)
        whole: torch.Tensor = v2.functional.resize(together, list(size), antialias=True)
        return whole

    return cropped

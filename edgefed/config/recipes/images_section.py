"""The recipe's ``[images]`` table: conversion of images to inputs, and their augmentation."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from edgefed.config.recipes.sections import FiniteNumber, PositiveNumber, Section


class ImagesSection(Section):
    """How the pixels of a run's images, from 0 to 1, become inputs, on every device alike.

    The other keys augment each image of a batch before that, in their order, as the transforms of
    ``torchvision.transforms.v2`` do.
    """

    mean: Annotated[tuple[FiniteNumber, ...], Field(max_length=64)] = ()
    """Mean of each channel, which is subtracted from the pixels. Unset: that of the coordinator's
    data set, else ImageNet's with a model of torchvision, else none."""

    std: Annotated[tuple[PositiveNumber, ...], Field(max_length=64)] = ()
    """Standard deviation of each channel, which the difference is divided by, like ``mean``."""

    resized_crop: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Crop each image at random and resize the crop to the image's size; the crop has at least this
    share of the image's area, and sides in a ratio of 3:4 to 4:3. Papers on ImageNet use 0.08. 0
    for no crop."""

    flip: bool = False
    """Mirror half of the images left to right."""

    rand_augment: Annotated[int, Field(ge=0, le=16)] = 0
    """Operations of RandAugment (Cubuk and others, 2020) on each image: shears, shifts, rotations
    and changes of colour. 0 for none; its paper uses 2."""

    magnitude: Annotated[int, Field(ge=0, le=30)] = 9
    """With ``rand_augment``: strength of its operations."""

    brightness: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Change the brightness by a factor from 1 - ``brightness``, and at least 0, to 1 +
    ``brightness``."""

    contrast: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Change the contrast by a factor, like ``brightness``."""

    saturation: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Change the saturation by a factor, like ``brightness``."""

    hue: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    """Shift the hue by up to this share of the colour circle, either way."""

    erase: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Probability with which a rectangle of 2 to 33 % of an image's area takes the colour
    ``mean``, or black."""

    @model_validator(mode="after")
    def _both(self) -> ImagesSection:
        """Check that mean and deviation are of the same channels."""
        if len(self.mean) != len(self.std):
            raise ValueError("mean and std need one number each for every channel")
        return self

    @property
    def wanted(self) -> bool:
        """Whether any key of the table is set."""
        return self != NO_IMAGES


NO_IMAGES = ImagesSection()
"""Images become inputs as they are."""

"""How image files become inputs: the keys that a recipe and a device's source share."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from edgefed.config.recipes.sections import Section

MAX_CACHE_BYTES = 64 * 2**30
"""Most bytes of a folder's decoded images, unless ``max_bytes`` says otherwise."""


class ImageOptions(Section):
    """How image files become inputs."""

    size: Annotated[int, Field(ge=0, le=4096)] = 0
    """Height and width in pixels to scale to; 0 if all images have the same size."""

    greyscale: bool = False
    """One channel instead of red, green and blue."""

    max_bytes: Annotated[int, Field(ge=1)] = MAX_CACHE_BYTES
    """Maximum size on disk of the folder's decoded images in bytes, one for each value; more are
    refused when the first one was read."""

"""No central data: the coordinator neither tests nor shares out; devices test on their own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from edgefed.config.recipe import Section
from edgefed.data.types import Dataset, no_samples
from edgefed.wire import limits


class NoneOptions(Section):
    """Keys of ``name = "none"``: what the model must know of data that only devices see."""

    classes: Annotated[int, Field(ge=0, le=limits.MAX_ITEMS)] = 0
    """How many labels there are, or numbers in a target; 0 for the most that a device announces."""

    shape: Annotated[
        tuple[Annotated[int, Field(ge=1)], ...], Field(max_length=limits.MAX_DIMENSIONS - 1)
    ] = ()
    """Shape of one input, such as ``[1, 28, 28]``; without ``classes`` the devices' own counts."""


def load_none(options: NoneOptions, folder: Path | None) -> Dataset:
    """Return a data set without samples."""
    nothing = no_samples(options.shape)
    return Dataset(nothing, nothing, options.classes, options.shape)

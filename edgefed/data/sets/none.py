"""No central data: the coordinator has no samples, and devices test on their own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from edgefed.config.recipes.sections import Section
from edgefed.data.base.types import Dataset, no_samples
from edgefed.wire import limits


class NoneOptions(Section):
    """Keys of ``name = "none"``: properties of the devices' data that the model needs."""

    shape: Annotated[
        tuple[Annotated[int, Field(ge=1)], ...], Field(max_length=limits.MAX_DIMENSIONS - 1)
    ] = ()
    """Shape of one input, such as ``[1, 28, 28]``; by default that of the devices."""


def load_none(options: NoneOptions, folder: Path | None) -> Dataset:
    """Return a data set without samples."""
    del folder
    nothing = no_samples(options.shape)
    return Dataset(nothing, nothing, 0, options.shape)

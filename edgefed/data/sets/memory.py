"""The data set of a run whose data a Python program passes to ``edgefed.simulate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from edgefed.data.base.types import Dataset
from edgefed.data.sets.options import DataOptions
from edgefed.errors import MissingDataError

MEMORY = "memory"
"""Its name in a recipe."""


class MemoryOptions(DataOptions):
    """Keys of ``name = "memory"``."""

    test_share: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Fraction held out for the coordinator's test if the program passes no test data."""


def load_memory(options: MemoryOptions, folder: Path | None) -> Dataset:
    """Refuse: nothing but the program that passed the data has them.

    Raises:
        MissingDataError: always.
    """
    del options, folder
    raise MissingDataError(
        "The recipe's data were passed to edgefed.simulate by a Python program and are not kept.",
        code="data.memory",
        hint="call edgefed.simulate(recipe, data=…), or name another data set in [data]",
    )

"""Limit the memory of a data set; the sizes that files declare are checked before reading.

A small file can declare, or expand to, more than the memory of any machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from edgefed.config.recipes.sections import Section
from edgefed.errors import DataError
from edgefed.terminal.units import size

MAX_BYTES = 2 * 2**30
"""Most bytes of one file or folder, unless ``max_bytes`` says otherwise."""

MAX_PIXELS = 2**26
"""Most pixels of one image, such as 8192x8192."""

MAX_NAMES_BYTES = 2**20
"""Longest list of class names."""

VALUE_BYTES = 4
"""Size of a value of an input, which becomes a float32 from any stored type."""

COLUMN_BYTES = 8
"""A value of a column becomes an int64."""


class SizedOptions(Section):
    """Keys of data that lie in files of a user's own."""

    max_bytes: Annotated[int, Field(ge=1)] = MAX_BYTES
    """Maximum memory of the file or folder in bytes, with inputs as float32; larger data is refused
    before it is read."""


def check_bytes(needed: int, most: int, where: str) -> None:
    """Check the bytes that something takes in memory.

    Raises:
        DataError: ``data.too_large``.
    """
    if needed > most:
        raise DataError(
            f"{where} takes at least {size(needed)} in memory; at most {size(most)} are allowed.",
            code="data.too_large",
            hint="check the file, or raise max_bytes (in [data], or ?max_bytes= of a source)",
        )


def check_file(path: Path, most: int) -> None:
    """Check the length of a file that is read at once.

    Raises:
        DataError: ``data.too_large``.
        OSError: there is no such file.
    """
    check_bytes(path.stat().st_size, most, str(path))

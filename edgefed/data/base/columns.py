"""Columns of samples: check the values of a file's columns beside the labels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from edgefed.data.base.types import Array
from edgefed.errors import DataError
from edgefed.files.samples import Samples
from edgefed.terminal.units import counted
from edgefed.wire import limits

TRAIN, TEST = "column/", "column_test/"
"""Prefixes of an NPZ file's column arrays: of the training samples, of the test samples."""

MAX_COLUMNS = 16
"""Most columns of a data set."""

MAX_NAME = 64
"""Longest name of a column."""

RESERVED = ("label", "device")
"""Names of other conditions in a recipe, which no column can have."""

_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_-]{{0,{MAX_NAME - 1}}}")


def with_columns(samples: Samples, columns: Mapping[str, Array], where: str) -> Samples:
    """Return the samples with columns, checked, as int64.

    Args:
        samples: without columns.
        columns: (n,) integers from 0, by name.
        where: names the file in the errors.

    Raises:
        DataError: a column is not one number of a category for each sample.
    """
    if len(columns) > MAX_COLUMNS:
        raise DataError(
            f"{where} has {len(columns)} columns; at most {MAX_COLUMNS} are supported.",
            hint="leave out columns that no recipe names",
        )
    checked = {name: _checked(name, columns[name], len(samples), where) for name in sorted(columns)}
    return replace(samples, columns=checked)


def same_columns(train: Samples, test: Samples, where: str) -> None:
    """Raise a `DataError` if only one part has a column."""
    lacking = sorted(train.columns.keys() ^ test.columns.keys())
    if lacking:
        part = "test" if lacking[0] in train.columns else "training"
        raise DataError(
            f"{where} has no column '{lacking[0]}' for the {part} samples.",
            hint=f"store {TRAIN}{lacking[0]} and {TEST}{lacking[0]}, one for each part",
        )


def category_counts(*parts: Samples) -> dict[str, int]:
    """Return the number of categories of each column: the highest number in all parts plus one."""
    counts: dict[str, int] = {}
    for name, column in (item for part in parts for item in part.columns.items()):
        counts[name] = max(counts.get(name, 0), int(column.max(initial=-1)) + 1)
    return counts


def columns_of(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """Return an NPZ file's columns of one part, by name."""
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def _checked(name: str, column: Array, samples: int, where: str) -> Array:
    if not _NAME.fullmatch(name) or name in RESERVED:
        raise DataError(
            f"{where} has a column that cannot be named '{name[:MAX_NAME]}'.",
            hint=f"use letters, digits, - and _, at most {MAX_NAME}, and neither"
            f" '{RESERVED[0]}' nor '{RESERVED[1]}'",
        )
    if column.dtype.kind not in "iu" or column.shape != (samples,):
        raise DataError(
            f"{where} has a column '{name}' of type {column.dtype} and shape {column.shape},"
            f" not one integer for each of {counted(samples, 'sample')}.",
            hint="store one integer for each sample, in the same order",
        )
    if samples and not 0 <= int(column.min()) <= int(column.max()) < limits.MAX_ITEMS:
        raise DataError(
            f"{where} has a column '{name}' with numbers from {column.min()} to {column.max()},"
            f" not within 0 to {limits.MAX_ITEMS - 1}.",
            hint="number the categories from 0",
        )
    return column.astype(np.int64)

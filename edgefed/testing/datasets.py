"""The contract of a data set: the requirements on a package's own reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgefed.data.base.preparation import PreparationOptions
from edgefed.data.base.types import Dataset
from edgefed.data.sets.dataset_reader import DatasetReader, dataset_problem
from edgefed.files.samples import Samples
from edgefed.testing.common import called, check_settings, other_global_seeds, pure, require
from edgefed.testing.play import bits


def check_dataset(
    reader: DatasetReader,
    settings: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    *,
    source: Path | None = None,
    source_options: Mapping[str, Any] | None = None,
) -> None:
    """Check a data set by reading it twice.

    Args:
        reader: the object that a package offers under ``edgefed.datasets``.
        settings: its keys of the recipe's ``[data]`` table.
        folder: base of relative paths.
        source: a device's data, where the reader has a source.
        source_options: the keys behind the ``?`` of such a source.

    Raises:
        AssertionError: it breaks the contract; the text describes how.
    """
    where = "the data set"
    values = dict(settings or {})
    require(bool(reader.summary), f"{where} has no summary")
    check_settings(reader.options, values, where)
    options = reader.options(**values)
    _check_reads(where, lambda: reader.read(options, folder))
    if source is None:
        return
    own = reader.source
    if own is None:
        raise AssertionError(f"{where} has no source for devices, but a path was given")
    check_settings(own.options, dict(source_options or {}), "the source")
    chosen: PreparationOptions = own.options(**dict(source_options or {}))
    _check_reads("the source", lambda: own.read(source, chosen))


def _check_reads(where: str, read: Callable[[], Dataset]) -> None:
    """Check the data, and that a second read gives the same."""
    with pure(f"{where}: reading it", {}):
        first = called(f"{where}: reading it", read)
    require(
        isinstance(first, Dataset),
        f"{where} returns {type(first).__name__}, not an edgefed Dataset",
    )
    problem = dataset_problem(first)
    require(not problem, f"{where} cannot be used: {problem}")
    require(len(first.train) > 0, f"{where} has no training samples")
    for title, part in (("training", first.train), ("test", first.test)):
        _check_part(f"{where}: its {title} samples", part)
    with other_global_seeds():
        second = called(f"{where}: reading it again", read)
    for title, one, other in (
        ("training", first.train, second.train),
        ("test", first.test, second.test),
    ):
        require(
            bits([one.float_inputs(), one.targets]) == bits([other.float_inputs(), other.targets]),
            f"{where}: its {title} samples differ when it is read again",
        )


def _check_part(where: str, part: Samples) -> None:
    if part.inputs.dtype.kind == "f":
        require(bool(np.isfinite(part.inputs).all()), f"{where} have inputs that are not finite")
    if part.targets.dtype.kind == "f":
        require(bool(np.isfinite(part.targets).all()), f"{where} have targets that are not finite")
    for name, column in part.columns.items():
        require(
            len(column) == len(part) and column.dtype == np.int64,
            f"{where} have a column '{name}' that is not one int64 number for each sample",
        )

"""Data sets of installed packages (entry point ``edgefed.datasets``), and of users' own modules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

from edgefed.data.base.preparation import PreparationOptions
from edgefed.data.base.types import Dataset
from edgefed.data.sets.options import DataOptions
from edgefed.errors import DataError, EdgeFedError
from edgefed.files.plugins import Plugins
from edgefed.files.samples import Samples
from edgefed.files.user_code import is_own_class

FAILED = (Exception, SystemExit)
"""How a package's code fails; code that ends the program must not end ours."""


@dataclass(frozen=True)
class SourceReader:
    """How a device reads its own data: ``NAME:PATH?KEY=VALUE``.

    Attributes:
        options: the keys that may follow the ``?``.
        read: the path and these keys to the samples. Without test samples, some are held out.
    """

    options: type[PreparationOptions]
    read: Callable[[Path, Any], Dataset]


@dataclass(frozen=True)
class DatasetReader:
    """A data set that a recipe can name, and that devices can read.

    Attributes:
        summary: one line for lists.
        options: the data set's own keys of the recipe's ``[data]`` table.
        read: from these keys and the base of relative paths (None for the working folder) to the
            samples.
        source: how devices read their own data of this kind; None if they cannot.
    """

    summary: str
    options: type[DataOptions]
    read: Callable[[Any, Path | None], Dataset]
    source: SourceReader | None = None


def dataset_plugins(built_in: Callable[[], tuple[str, ...]]) -> Plugins[DatasetReader]:
    """Return the data sets that packages offer beside those that are built in."""
    return Plugins("data set", "edgefed.datasets", built_in, _checked, code="data.plugin")


def read_guarded(name: str, read: Callable[[], object]) -> Dataset:
    """Return the data set that a package's code reads, checked.

    Raises:
        DataError: ``data.reader``: it fails, or its result is not a data set.
    """
    try:
        dataset = read()
    except EdgeFedError:
        raise
    except FAILED as error:
        raise _failed(name, f"{type(error).__name__}: {error}") from error
    if not isinstance(dataset, Dataset):
        raise _failed(name, f"it returns {type(dataset).__name__}, not an edgefed Dataset")
    problem = dataset_problem(dataset)
    if problem:
        raise _failed(name, problem)
    return dataset


def dataset_problem(dataset: Dataset) -> str:
    """Return why a data set cannot be used, or nothing."""
    parts: dict[str, object] = {"training": dataset.train, "test": dataset.test}
    for title, part in parts.items():
        if not isinstance(part, Samples):
            return f"its {title} part is {type(part).__name__}, not edgefed Samples"
        problem = _part_problem(dataset, part)
        if problem:
            return f"its {title} samples have {problem}"
    if dataset.groups is not None and len(dataset.groups) != len(dataset.train):
        return f"it has {len(dataset.train)} training samples, but {len(dataset.groups)} groups"
    if dataset.class_names and len(dataset.class_names) != dataset.classes:
        return f"it has {dataset.classes} classes, but {len(dataset.class_names)} names of classes"
    return ""


def _part_problem(dataset: Dataset, part: Samples) -> str:
    shape = tuple(part.inputs.shape[1:])
    if len(part) and shape != tuple(dataset.shape):
        return f"inputs of shape {shape}, not the data set's {tuple(dataset.shape)}"
    if len(part.inputs) != len(part.targets):
        return f"{len(part.inputs)} inputs, but {len(part.targets)} targets"
    if not len(part):
        return ""
    if part.inputs.dtype.name not in ("float32", "int64", "uint8"):
        return f"inputs of type {part.inputs.dtype}, not float32, uint8 pixels or int64 tokens"
    if part.targets.ndim == 1 and part.targets.dtype.name != "int64":
        return f"labels of type {part.targets.dtype}, not int64"
    if part.targets.ndim == 1 and not 0 <= part.targets.min() <= part.targets.max() < (
        dataset.classes
    ):
        return (
            f"labels from {part.targets.min()} to {part.targets.max()}, but there are"
            f" {dataset.classes} classes"
        )
    if part.targets.ndim > 1 and part.targets.shape[1] != dataset.classes:
        return f"{part.targets.shape[1]} numbers in a target, not {dataset.classes}"
    return ""


def _failed(name: str, why: str) -> DataError:
    return DataError(
        f"Data set '{name}' cannot be read: {' '.join(why.split())[:500].rstrip('.')}.",
        code="data.reader",
        hint="check its keys and its code, or report this to the authors of its package",
    )


def _checked(name: str, member: object) -> DatasetReader:
    """Return a package's object as a data set; a user's own may be a function that reads.

    Raises:
        ValueError: it is not one.
    """
    if is_own_class(name) and isinstance(member, FunctionType):
        return DatasetReader("", DataOptions, member)
    if not isinstance(member, DatasetReader):
        raise ValueError("is no edgefed.extension.DatasetReader")
    if not _is_subclass(member.options, DataOptions):
        raise ValueError("has options that are no subclass of DataOptions")
    if not callable(member.read):
        raise ValueError("has no function that reads")
    source = member.source
    if source is not None and not (
        isinstance(source, SourceReader)
        and _is_subclass(source.options, PreparationOptions)
        and callable(source.read)
    ):
        raise ValueError("has a source that is no SourceReader with PreparationOptions")
    return member


def _is_subclass(member: object, of: type) -> bool:
    return isinstance(member, type) and issubclass(member, of)

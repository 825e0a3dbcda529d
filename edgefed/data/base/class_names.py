"""Class names of data: check and compare them, and renumber labels for another list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from pydantic import TypeAdapter

from edgefed.config.recipes.class_names import normal
from edgefed.config.recipes.recipe import DataSection
from edgefed.data.base.types import ClassNames, Dataset, Indices
from edgefed.errors import DataError
from edgefed.files.samples import Samples
from edgefed.terminal.printable import printable
from edgefed.wire import limits, message_parts

_SENDABLE: TypeAdapter[ClassNames] = TypeAdapter(message_parts.ClassNames)

SHOWN = 8
"""Names that a sentence lists before it only counts."""


def checked_names(names: Sequence[str], where: str) -> ClassNames:
    """Return names of classes as they travel; an empty one is a number that no class has.

    Raises:
        DataError: a name occurs twice, is too long, or has control characters.
    """
    normalised = tuple(normal(name) for name in names)
    repeated = twice(normalised)
    if repeated:
        raise DataError(
            f"{where} names the class '{repeated}' twice.", hint="give each class its own name"
        )
    try:
        return _SENDABLE.validate_python(normalised)
    except ValueError as error:
        first = next((f", such as '{printable(n, '?')[:80]}'" for n in normalised if _bad(n)), "")
        raise DataError(
            f"{where} has class names that cannot be sent{first}.",
            hint=f"use printable names of at most {limits.MAX_CLASS_NAME} characters,"
            f" {limits.MAX_CLASS_NAMES_BYTES} bytes in total",
        ) from error


def _bad(name: str) -> bool:
    """Whether a name alone cannot be sent."""
    try:
        _SENDABLE.validate_python((name,))
    except ValueError:
        return True
    return False


def twice(names: ClassNames) -> str:
    """Return a name that occurs more than once, or nothing."""
    seen: set[str] = set()
    for name in names:
        if name and name in seen:
            return name
        seen.add(name)
    return ""


def numbered(names: ClassNames) -> bool:
    """Whether each name only repeats its label's number, or there are none: plain integers."""
    return all(
        not name or (name.isdecimal() and int(name) == label) for label, name in enumerate(names)
    )


def unlisted(names: ClassNames, listed: ClassNames) -> tuple[str, ...]:
    """Return the names that a list lacks."""
    known = set(listed)
    return tuple(name for name in names if name and name not in known)


def in_words(names: Sequence[str]) -> str:
    """Return names for a sentence; of many, the first few and how many more there are."""
    shown = ", ".join(f"'{name}'" for name in names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"


def renumbered(samples: Samples, names: ClassNames, listed: ClassNames) -> Samples:
    """Return samples whose labels count ``listed`` in place of ``names``, which it contains.

    The samples themselves where no number changes.
    """
    if names == listed[: len(names)] or not samples.has_labels:
        return samples
    return replace(samples, targets=_places(names, listed)[samples.targets])


def _places(names: ClassNames, listed: ClassNames) -> Indices:
    """Return the position of each name in the list; -1 for a number that no class has."""
    known = {name: place for place, name in enumerate(listed)}
    return np.array([known.get(name, -1) for name in names], np.int64)


def with_classes(dataset: Dataset, section: DataSection) -> Dataset:
    """Return a data set whose labels count the classes of the recipe's ``data.classes``.

    A data set without names has them in the order of the list.

    Raises:
        DataError: ``data.classes``: it has other classes, or more of them.
    """
    listed = section.class_names
    count = len(listed) if isinstance(section.classes, tuple) else section.classes
    if not count:
        return dataset
    where = f"Data set '{section.name}'"
    strange = unlisted(dataset.class_names, listed) if listed else ()
    if strange:
        raise _misfit(f"{where} has classes that `classes` does not list: {in_words(strange)}")
    if not dataset.train.has_labels:
        _check_targets(dataset, listed, count, where)
        return dataset
    if listed and dataset.class_names:
        return _renumbered(dataset, listed)
    if dataset.classes > count or (not numbered(dataset.class_names) and dataset.classes != count):
        raise _misfit(f"{where} has {dataset.classes} classes, `classes` has {count}")
    names = listed or (dataset.class_names if dataset.classes == count else ())
    return replace(dataset, classes=count, class_names=names)


def _renumbered(dataset: Dataset, listed: ClassNames) -> Dataset:
    """Return a data set whose classes have names, numbered after the list."""
    names, coarse = dataset.class_names, dataset.coarse
    if coarse is not None:
        held = np.array([bool(name) for name in names])
        moved = np.zeros(len(listed), np.int64)
        moved[_places(names, listed)[held]] = coarse[held]
        coarse = moved
    return replace(
        dataset,
        train=renumbered(dataset.train, names, listed),
        test=renumbered(dataset.test, names, listed),
        classes=len(listed),
        class_names=listed,
        coarse=coarse,
    )


def _check_targets(dataset: Dataset, listed: ClassNames, count: int, where: str) -> None:
    """Refuse names, or another count, for targets that are numbers."""
    if listed:
        raise _misfit(f"{where} has numbers for targets, which have no classes to name")
    if dataset.classes != count:
        raise _misfit(f"{where} has targets of {dataset.classes} numbers, `classes` says {count}")


def _misfit(what: str) -> DataError:
    return DataError(
        f"{what}.", code="data.classes", hint="correct `classes` in the recipe's [data] table"
    )

"""Data that a program has in memory, as the data set of a simulation.

All data go through one data set. The recipe's ``[data]`` table states its classes and preparation.
If the program gives each device its own data, these are parts of that data set.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from edgefed.config.recipes.recipe import NAME_PATTERN, Recipe
from edgefed.data.base.checks import (
    CHANNELS,
    checked_numbers,
    checked_samples,
    count_classes,
    require_samples,
    same_shape,
    same_targets,
)
from edgefed.data.base.class_names import checked_names
from edgefed.data.base.columns import same_columns
from edgefed.data.base.holdout import held_out_positions, hold_out
from edgefed.data.base.types import Array, ClassNames, Dataset, Shard, joined, no_samples, take
from edgefed.data.partitioners.keys import dataset_keys_of
from edgefed.data.sets.datasets import complete
from edgefed.data.sets.map_style import MapStyle, as_array, read_map_style
from edgefed.data.sets.memory import MemoryOptions
from edgefed.data.sets.options import checked_options
from edgefed.errors import DataError, RecipeError, UsageError
from edgefed.files.samples import Samples
from edgefed.seeds import derive, generator

Part = tuple[Any, Any] | Dataset | MapStyle
"""Inputs and targets as two arrays or tensors, a data set of ours, or a map-style data set."""

Data = Part | Mapping[str, Part]
"""Data to partition over devices, or each device's own, by the device's name."""


@dataclass(frozen=True, eq=False)
class GivenDevice:
    """A device's own data.

    Attributes:
        test: for evaluation on the device; None where it is held out of ``train``.
    """

    name: str
    train: Samples
    test: Samples | None


@dataclass(frozen=True, eq=False)
class GivenData:
    """A data set, and its parts where each device was given its own.

    Attributes:
        devices: sorted by name; empty where the recipe's partition applies.
    """

    dataset: Dataset
    devices: tuple[GivenDevice, ...] = ()


def given_data(data: Data, test: Part | None, recipe: Recipe) -> GivenData:
    """Return data in memory as the data set of a recipe whose data set is ``memory``.

    Args:
        data: to partition, or by device.
        test: the coordinator's test data; None for that of ``data``, or to hold some out.
        recipe: its ``[data]`` table states classes and preparation.

    Raises:
        UsageError: it is of another kind, or a device's name is invalid.
        DataError, RecipeError: the data cannot be trained on, or cannot be prepared so.
    """
    values = dataset_keys_of(recipe.data, MemoryOptions)
    options = checked_options(MemoryOptions, values, "Data set 'memory'")
    # Preparation and transforms compute with numbers; otherwise images of bytes stay bytes.
    keep_bytes = not options.normalize and options.transform == "none"
    tested = None if test is None else _read(test, "test", keep_bytes)
    if isinstance(data, Mapping):
        return _by_device(data, tested, recipe, options, keep_bytes)
    part = _read(data, "data", keep_bytes)
    if tested is not None:
        _check_alike([part, tested], ["data", "test"])
        part = replace(part, test=tested.train)
    classes = max(part.classes, tested.classes if tested else 0)
    part = replace(_with_test(part, options.test_share), classes=classes)
    return GivenData(complete(part, recipe.data, options, derive(recipe.seed, "data")))


def given_shards(given: GivenData, holdout: float, seed: int) -> tuple[Shard, ...]:
    """Return the shard of each device that was given its own data.

    Args:
        given: with devices.
        holdout: share of its samples that a device without test data keeps for evaluation.
        seed: the run's.
    """
    dataset = given.dataset
    shards = []
    for number, device in enumerate(given.devices):
        train, test = device.train, device.test
        if test is None:
            rng = generator(seed, "partition", "holdout", number)
            train, test = hold_out(train, holdout, rng)
        shard = Shard(train, test, dataset.classes, dataset.preparation)
        shards.append(replace(shard, class_names=dataset.class_names))
    return tuple(shards)


def _by_device(
    data: Mapping[str, Part],
    test: Dataset | None,
    recipe: Recipe,
    options: MemoryOptions,
    keep_bytes: bool,
) -> GivenData:
    """Return data that are given for each device: one data set, and the devices' parts of it."""
    _check_names(data)
    for key, refused in (("limit", options.limit), ("transform", options.transform != "none")):
        if refused:
            raise RecipeError(
                f"data.{key} cannot be used when each device is given its own data.",
                code="recipe.data",
                hint="prepare each device's data before the call",
            )
    names = sorted(data)
    parts = [_read(data[name], f"data[{name!r}]", keep_bytes) for name in names]
    everyone = [*parts, *([test] if test else [])]
    _check_alike(everyone, [*(f"data[{name!r}]" for name in names), "test"])
    ours = test.train if test else no_samples(parts[0].shape)
    trains, tests = [part.train for part in parts], [ours, *(part.test for part in parts)]
    whole = Dataset(
        _joined(trains),
        _joined(tests) if any(map(len, tests)) else ours,
        max(part.classes for part in everyone),
        parts[0].shape,
        preparation=parts[0].preparation,
        class_names=parts[0].class_names,
    )
    whole = complete(whole, recipe.data, options, derive(recipe.seed, "data"))
    own, (ours, *tested) = _cut(whole.train, trains), _cut(whole.test, tests)
    devices = (
        GivenDevice(name, train, held if len(held) else None)
        for name, train, held in zip(names, own, tested, strict=True)
    )
    return GivenData(replace(whole, test=ours), tuple(devices))


def _read(part: Part, where: str, keep_bytes: bool) -> Dataset:
    """Return a part as a data set, whose test part is empty where it has none."""
    if isinstance(part, Dataset):
        require_samples(part.train, where)
        if part.train.has_images and not keep_bytes:
            train, test = _as_floats(part.train), _as_floats(part.test)
            return replace(part, train=train, test=test)
        return part
    names: ClassNames = ()
    if isinstance(part, tuple) and len(part) == 2:
        inputs, targets = (
            as_array(array, f"{where}, its {what},")
            for array, what in zip(part, ("inputs", "targets"), strict=True)
        )
    elif isinstance(part, MapStyle) and not isinstance(part, (str, bytes, np.ndarray, tuple)):
        inputs, targets = read_map_style(part, where)
        names = _names_of(part, where)
    else:
        raise UsageError(
            f"{where} cannot be a {type(part).__name__}.",
            hint="give (inputs, targets), a Dataset with __len__ and __getitem__, or a mapping of"
            " these by device",
        )
    samples = _samples(inputs, targets, where, keep_bytes)
    require_samples(samples, where)
    classes = max(count_classes(where, samples), len(names))
    shape = samples.inputs.shape[1:]
    return Dataset(samples, no_samples(shape), classes, shape, class_names=names)


def _samples(inputs: Array, targets: Array, where: str, keep_bytes: bool) -> Samples:
    """Return checked samples; images of bytes stay bytes where they may, channels first."""
    check = checked_numbers if targets.dtype.kind == "f" else checked_samples
    if not (keep_bytes and inputs.dtype == np.uint8 and inputs.ndim in (3, 4) and inputs.size):
        return check(inputs, targets, where)
    checked = check(np.zeros((len(inputs), 1), np.float32), targets, where)
    if inputs.ndim == 3:
        inputs = inputs[:, None]
    elif inputs.shape[-1] in CHANNELS:
        inputs = np.moveaxis(inputs, -1, 1)
    return replace(checked, inputs=inputs)


def _names_of(part: MapStyle, where: str) -> ClassNames:
    """Return the ``classes`` of a data set, as those of torchvision have them; empty if none."""
    names = getattr(part, "classes", None)
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        return ()
    return checked_names([str(name) for name in names], where)


def _with_test(dataset: Dataset, share: float) -> Dataset:
    """Return a data set with samples held out where it has no test part, as for an NPZ file."""
    if len(dataset.test) or not share:
        return dataset
    train, rng = dataset.train, generator(0, "data", "npz", "test")
    kept, held = held_out_positions(train.targets, share, rng)
    groups = None if dataset.groups is None else dataset.groups[kept]
    return replace(dataset, train=take(train, kept), test=take(train, held), groups=groups)


def _check_names(data: Mapping[str, Part]) -> None:
    if not data:
        raise UsageError("data names no device.", hint="give data for at least one device")
    for name in data:
        if not isinstance(name, str) or not re.fullmatch(NAME_PATTERN, name):
            raise UsageError(
                f"{name!r} cannot be the name of a device.",
                hint="use 1 to 64 lower-case letters, digits and hyphens",
            )


def _check_alike(parts: Sequence[Dataset], wheres: Sequence[str]) -> None:
    """Check that parts can be in one data set.

    Raises:
        DataError: they differ in a property that all samples of a run share.
    """
    first = parts[0]
    for part, where in zip(parts[1:], wheres[1:], strict=False):
        both = f"{wheres[0]} and {where}"
        same_shape(first.train, part.train, both)
        same_targets(first.train, part.train, both)
        same_columns(first.train, part.train, both)
        if part.class_names and part.class_names != first.class_names:
            raise DataError(
                f"{where} has other classes than {wheres[0]}.",
                code="data.classes",
                hint="give all data one list of classes",
            )
        if (part.preparation, part.train.scale) != (first.preparation, first.train.scale):
            raise DataError(
                f"{where} was normalised in another way than {wheres[0]}.",
                hint="prepare all data in one way",
            )


def _joined(parts: Sequence[Samples]) -> Samples:
    """Return the samples of all parts; bytes become numbers where only some parts have bytes."""
    filled = [part for part in parts if len(part)]
    if len({part.has_images for part in filled}) > 1:
        filled = [_as_floats(part) for part in filled]
    return replace(joined(filled), scale=filled[0].scale)


def _cut(whole: Samples, parts: Sequence[Samples]) -> list[Samples]:
    """Return samples cut, without a copy, into parts of these lengths."""
    ends = np.cumsum([0, *map(len, parts)])
    return [_between(whole, *pair) for pair in pairwise(ends.tolist())]


def _between(whole: Samples, start: int, stop: int) -> Samples:
    columns = {name: column[start:stop] for name, column in whole.columns.items()}
    return Samples(whole.inputs[start:stop], whole.targets[start:stop], columns, whole.scale)


def _as_floats(samples: Samples) -> Samples:
    return replace(samples, inputs=samples.float_inputs())

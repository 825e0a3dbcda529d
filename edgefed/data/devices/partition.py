"""Partition a data set among virtual devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import ConfigDict

from edgefed.config.recipes.recipe import DataSection, Recipe
from edgefed.data.base.holdout import hold_out
from edgefed.data.base.types import Array, Dataset, Indices, Shard, joined, take
from edgefed.data.devices.dealt_shards import MANY_DEVICES, DealtShards
from edgefed.data.partitioners.cover import Parts, check_parts, too_few
from edgefed.data.partitioners.dirichlet_equal import equal_concentration
from edgefed.data.partitioners.keys import partition_keys_of, partition_options
from edgefed.data.partitioners.registry import (
    PARTITION_PLUGINS,
    PARTITIONERS,
    Partitioner,
    PartitionRequest,
    find_partitioner,
    partition_names,
)
from edgefed.data.sets.options import DataOptions, checked_options, nearest
from edgefed.data.transforms.apply import order_number, spread_of, transform_device
from edgefed.errors import DataError, EdgeFedError, RecipeError
from edgefed.files.samples import Samples
from edgefed.seeds import generator
from edgefed.sharing.policy import ANYTHING

PARTITIONS = tuple(PARTITIONERS)


class _SharingOptions(DataOptions):
    """The keys that are a partition's or a transform's; the data set checks the others."""

    model_config = ConfigDict(extra="ignore")


def partition(
    section: DataSection,
    labels: Indices,
    devices: int,
    classes: int,
    rng: np.random.Generator,
    *,
    groups: Indices | None = None,
    coarse: Indices | None = None,
    inputs: Array | None = None,
) -> Parts:
    """Return which samples each device holds, as the recipe's data section says.

    Args:
        section: ``partition``, one of `partition_names`, and its keys.
        labels: (n,) integers in [0, classes), or targets (n, outputs) that are no labels.
        devices: number of parts.
        classes: number of labels.
        rng: source of every draw.
        groups: (n,) origin of each sample; None where the data does not state it.
        coarse: (classes,) the coarse label of each label; None where there is none.
        inputs: (n, …) prepared inputs, for a partition that uses them.

    Returns:
        One array of positions a device, in random order, never empty, no position twice. The
        partition's `Cover` describes them together.

    Raises:
        RecipeError: there is no such partition.
        PluginError: a package offers it, but it cannot be used.
        DataError: the samples cannot be partitioned so.
    """
    chosen = _chosen(section)
    _check_request(section, chosen, labels, devices, classes)
    options = checked_options(_SharingOptions, section.settings(), "The partition")
    own = checked_options(partition_options(section), partition_keys_of(section), "The partition")
    seen = _read_only(inputs) if chosen.by_inputs else None
    request = PartitionRequest(section, options, labels, devices, groups, coarse, own, seen)
    parts = _split(chosen, request, rng)
    empty = sum(not len(part) for part in parts)
    if empty:
        raise too_few(
            f"{empty} of {devices} devices would get no samples.",
            hint="use fewer devices, another partition, or more data",
        )
    return parts


def deal(
    dataset: Dataset,
    section: DataSection,
    devices: int,
    holdout: float,
    seed: int,
    *,
    in_order: bool = False,
) -> Sequence[Shard]:
    """Return each virtual device's shard of ``dataset.train``, transformed as the section says.

    Shards of many devices that are neither transformed nor split are copied when they are read.

    Args:
        dataset: the data to partition; its test part stays with the coordinator.
        section: see `partition`.
        devices: number of shards.
        holdout: share of its samples that each device keeps for evaluation, in [0, 1).
        seed: the run's; the same seed deals the same shards.
        in_order: whether each device's samples keep the order of the data set, as a recurrent
            state that is carried through a text needs; otherwise their order is random.

    Raises:
        RecipeError, DataError: as `partition`; or the transform needs other inputs.
    """
    options = checked_options(_SharingOptions, section.settings(), "The partition")
    per_device = options.parts_per_device
    parts = _parts(dataset, section, devices * per_device, seed)
    if in_order:
        parts = tuple(np.sort(part) for part in parts)

    spread = spread_of(dataset, options)

    def seen(number: int) -> Samples:
        part = take(dataset.train, parts[number])
        return transform_device(part, dataset, options, number, seed, spread)

    plain = options.transform == "none" and not holdout
    nothing = take(dataset.train, np.zeros(0, np.int64))
    form = dataset.classes, dataset.preparation, ANYTHING, dataset.class_names
    if plain and devices >= MANY_DEVICES:
        if per_device > 1:  # single parts are views, and copies take twice their memory
            pooled = range(0, len(parts), per_device)
            parts = tuple(np.concatenate(parts[place : place + per_device]) for place in pooled)
        return DealtShards(dataset.train, parts, Shard(nothing, nothing, *form))

    def dealt(device: int) -> Shard:
        train = joined([seen(device * per_device + place) for place in range(per_device)])
        test = nothing  # one for all devices: a generator for each, and its test part, take seconds
        if not plain:
            train, test = hold_out(train, holdout, generator(seed, "partition", "holdout", device))
        return Shard(train, test, *form)

    return tuple(map(dealt, range(devices)))


def _parts(dataset: Dataset, section: DataSection, count: int, seed: int) -> Parts:
    """Return so many parts of ``dataset.train``; see `partition`."""
    return partition(
        section,
        dataset.train.targets,
        count,
        dataset.classes,
        generator(seed, "partition"),
        groups=dataset.groups,
        coarse=dataset.coarse,
        inputs=dataset.train.model_inputs,
    )


def deal_recipe(dataset: Dataset, recipe: Recipe, holdout: float) -> Sequence[Shard]:
    """Return each virtual device's shard in runs of a recipe; see `deal`."""
    return deal(
        dataset,
        recipe.data,
        recipe.simulation.devices,
        holdout,
        recipe.seed,
        in_order=recipe.training.carry_state,
    )


def planted_orders(section: DataSection, devices: int, seed: int) -> Indices:
    """Return the number of each device's order of labels (devices,); empty without permutations.

    It is also empty where a device holds several parts, each of which has an order of its own.
    """
    options = checked_options(_SharingOptions, section.settings(), "The partition")
    if options.transform != "permutation" or options.parts_per_device > 1:
        return np.zeros(0, np.int64)
    return np.array([order_number(options, device, seed) for device in range(devices)], np.int64)


def concentration(
    section: DataSection, labels: Indices, devices: int, coarse: Indices | None = None
) -> dict[str, Any] | None:
    """Return the distribution of a Dirichlet partition, or None for other partitions.

    Papers use alpha differently, so the result states it in full: ``axis``, the axis of a draw;
    ``components``, their number; ``values``, their concentrations.
    """
    options = checked_options(_SharingOptions, section.settings(), "The partition")
    parts = devices * options.parts_per_device
    what = "devices" if parts == devices else "parts"
    if section.partition in ("dirichlet", "growing", "clusters"):
        of = "cluster" if section.partition == "clusters" else "label"
        return _distribution(f"{what}, for each {of}", [section.alpha] * parts)
    if section.partition == "quantity":
        return _distribution(what, [section.alpha] * parts)
    if section.partition == "dirichlet-equal":
        values = equal_concentration(labels, section.alpha, options.per_component)
        return _distribution("labels, for each device", values.tolist())
    if section.partition == "pachinko" and coarse is not None:
        kinds = len(np.unique(coarse[np.unique(labels)]))
        record = _distribution("coarse labels, for each device", [options.coarse_alpha] * kinds)
        return {**record, "fine": options.fine_alpha}
    return None


def label_counts(samples: Samples, classes: int) -> tuple[int, ...]:
    """Return the number of ``samples`` with each label from 0 to ``classes - 1``.

    Empty where targets are not labels.
    """
    if not samples.has_labels:
        return ()
    counts: list[int] = np.bincount(samples.targets, minlength=classes).tolist()
    return tuple(counts)


def _split(chosen: Partitioner, request: PartitionRequest, rng: np.random.Generator) -> Parts:
    """Return the parts of a partition, checked; a package's errors are ours.

    Raises:
        DataError: the samples cannot be partitioned so.
    """
    name, labels = request.section.partition, request.labels
    if name in PARTITIONERS:
        parts = chosen.split(request, rng)
        check_parts(parts, labels, chosen.cover, request.groups)
        return parts
    try:
        parts = tuple(np.asarray(part, np.int64) for part in chosen.split(request, rng))
        if len(parts) != request.devices:
            raise ValueError(f"it returns {len(parts)} parts for {request.devices} devices")
        check_parts(parts, labels, chosen.cover, request.groups)
    except EdgeFedError:
        raise
    except (Exception, SystemExit) as error:
        why = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise DataError(
            f"The partition '{name}' of {PARTITION_PLUGINS.package(name)} failed:"
            f" {' '.join(why.split())[:500].rstrip('.')}.",
            code="data.partition",
            hint="correct it, or report this to the authors of that package",
        ) from error
    return parts


def _read_only(inputs: Array | None) -> Array | None:
    """Return inputs that a partition cannot change by mistake."""
    if not isinstance(inputs, np.ndarray):  # images that are scaled, and copied, where indexed
        return inputs
    view = inputs.view()
    view.flags.writeable = False
    return view


def _distribution(axis: str, values: list[float]) -> dict[str, Any]:
    distinct = sorted(set(values))
    shown = distinct if len(distinct) == 1 else values
    return {"axis": axis, "components": len(values), "values": shown}


def _chosen(section: DataSection) -> Partitioner:
    partitioner = find_partitioner(section.partition)
    if partitioner is None:
        raise RecipeError(
            f"There is no partition '{section.partition}'.",
            code="recipe.data",
            hint=nearest(section.partition, list(partition_names())),
        )
    return partitioner


def _check_request(
    section: DataSection, chosen: Partitioner, labels: Indices, devices: int, classes: int
) -> None:
    if len(labels) < devices:
        raise too_few(
            f"{len(labels)} training samples cannot be divided among {devices} devices.",
            hint="use fewer devices, or name a larger data set",
        )
    if labels.ndim > 1:
        _check_unlabelled(section, chosen)
    if chosen.per_class and section.classes_per_device > classes:
        raise too_few(
            f"Each device needs {section.classes_per_device} labels, but there are {classes}.",
            hint=f"set classes_per_device to at most {classes}",
        )
    if labels.ndim == 1 and not 0 <= labels.min() <= labels.max() < classes:
        raise DataError(
            f"There are labels outside 0 to {classes - 1}.",
            hint="state the data's number of classes",
        )


def _check_unlabelled(section: DataSection, chosen: Partitioner) -> None:
    """Refuse a partition that goes by labels where there are none."""
    if not chosen.by_label:
        return
    others = [name for name, other in PARTITIONERS.items() if not other.by_label]
    raise DataError(
        f"The partition '{section.partition}' needs labels, but the targets of data set"
        f" '{section.name}' are numbers.",
        code="data.partition",
        hint=f"set data.partition to one of {', '.join(others)}",
    )

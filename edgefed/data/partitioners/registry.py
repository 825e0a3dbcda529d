"""The partitions that a recipe can name, with the properties that each guarantees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

import numpy as np

from edgefed.config.recipes.recipe import DataSection
from edgefed.config.recipes.sections import Section
from edgefed.data.base.types import Array, Indices
from edgefed.data.partitioners.balanced import balanced
from edgefed.data.partitioners.clusters import input_clusters
from edgefed.data.partitioners.cover import Cover, Parts
from edgefed.data.partitioners.dirichlet import dirichlet
from edgefed.data.partitioners.dirichlet_equal import dirichlet_equal
from edgefed.data.partitioners.disjoint_random import disjoint_random
from edgefed.data.partitioners.growing import growing
from edgefed.data.partitioners.histograms import (
    HistogramOptions,
    histograms,
    read_histograms,
)
from edgefed.data.partitioners.iid import iid
from edgefed.data.partitioners.natural import natural
from edgefed.data.partitioners.niid_label import niid_label
from edgefed.data.partitioners.options import PartitionOptions
from edgefed.data.partitioners.overlap import overlap
from edgefed.data.partitioners.pachinko import pachinko
from edgefed.data.partitioners.quantity import quantity
from edgefed.data.partitioners.shards import shards
from edgefed.errors import DataError
from edgefed.files.plugins import Plugins
from edgefed.files.user_code import is_own_class


@dataclass(frozen=True, eq=False)
class PartitionRequest:
    """A request to partition samples.

    Attributes:
        section: the recipe's data section.
        options: the partitions' keys of it.
        labels: (n,) integers in [0, classes); for a partition that ignores them also numbers (n,
            outputs).
        devices: number of parts.
        groups: (n,) origin of each sample; None where the data does not state it.
        coarse: (classes,) the coarse label of each label; None where there is none.
        own: the partition's own keys, as its ``Partitioner.options``; None if it has none.
        inputs: (n, …) prepared inputs of the samples, float32 or int64 tokens, which must not be
            changed; images of a folder are read where they are indexed. None unless the partition
            is ``by_inputs``.
    """

    section: DataSection
    options: PartitionOptions
    labels: Indices
    devices: int
    groups: Indices | None = None
    coarse: Indices | None = None
    own: Any = None
    inputs: Array | None = None


@dataclass(frozen=True)
class Partitioner:
    """One way to partition samples.

    Attributes:
        split: draws the parts.
        cover: the samples that they hold together.
        per_class: whether ``classes_per_device`` applies.
        by_label: whether it uses labels, and not only the number of samples.
        options: its own keys of the recipe's ``[data]`` table, beside those of all partitions.
        summary: one line for lists.
        by_inputs: whether it uses inputs, which are then in the request.
    """

    split: Callable[[PartitionRequest, np.random.Generator], Parts]
    cover: Cover
    per_class: bool = False
    by_label: bool = True
    options: type[Section] | None = None
    summary: str = ""
    by_inputs: bool = False


def _by_class(
    function: Callable[[Indices, int, int, np.random.Generator], Parts],
) -> Callable[[PartitionRequest, np.random.Generator], Parts]:
    def split(request: PartitionRequest, rng: np.random.Generator) -> Parts:
        classes = request.section.classes_per_device
        return function(request.labels, request.devices, classes, rng)

    return split


def _overlap(request: PartitionRequest, rng: np.random.Generator) -> Parts:
    classes, samples = request.section.classes_per_device, request.options.samples_per_device
    return overlap(request.labels, request.devices, classes, rng, samples)


def _shards(request: PartitionRequest, rng: np.random.Generator) -> Parts:
    return shards(request.labels, request.devices, request.options.shards_per_device, rng)


def _dirichlet(request: PartitionRequest, rng: np.random.Generator) -> Parts:
    return dirichlet(
        request.labels,
        request.devices,
        request.section.alpha,
        rng,
        min_samples=request.options.min_samples,
        balance=request.options.balance,
    )


def _dirichlet_equal(request: PartitionRequest, rng: np.random.Generator) -> Parts:
    return dirichlet_equal(
        request.labels,
        request.devices,
        request.section.alpha,
        rng,
        per_component=request.options.per_component,
    )


def _growing(request: PartitionRequest, rng: np.random.Generator) -> Parts:
    return growing(
        request.labels,
        request.devices,
        request.section.alpha,
        rng,
        pieces=request.options.pieces,
        pieces_used=request.options.pieces_used,
        min_samples=request.options.min_samples,
        balance=request.options.balance,
    )


def _quantity(request: PartitionRequest, rng: np.random.Generator) -> Parts:
    alpha, least = request.section.alpha, request.options.min_samples
    return quantity(request.labels, request.devices, alpha, rng, min_samples=least)


def _natural(request: PartitionRequest, rng: np.random.Generator) -> Parts:
    if request.groups is None:
        raise _lacking(request, "who each sample is from", "femnist, shakespeare or a groups_file")
    options = request.options
    return natural(
        request.groups,
        request.devices,
        rng,
        min_samples=options.min_samples,
        merge=options.merge_groups,
    )


def _pachinko(request: PartitionRequest, rng: np.random.Generator) -> Parts:
    if request.coarse is None:
        raise _lacking(request, "coarse labels", "cifar100, or an NPZ file with `coarse`")
    return pachinko(
        request.labels,
        request.coarse,
        request.devices,
        rng,
        coarse_alpha=request.options.coarse_alpha,
        fine_alpha=request.options.fine_alpha,
    )


def _clusters(request: PartitionRequest, rng: np.random.Generator) -> Parts:
    assert request.inputs is not None
    clusters = input_clusters(request.inputs, request.options.clusters, rng)
    return _dirichlet(replace(request, labels=clusters), rng)


def _histograms(request: PartitionRequest, rng: np.random.Generator) -> Parts:
    return histograms(request.labels, read_histograms(request.own, request.devices), rng)


def _iid(request: PartitionRequest, rng: np.random.Generator) -> Parts:
    return iid(request.labels, request.devices, rng)


def _lacking(request: PartitionRequest, what: str, instead: str) -> DataError:
    return DataError(
        f"Data set '{request.section.name}' does not state {what},"
        f" which the partition '{request.section.partition}' needs.",
        code="data.partition",
        hint=f"use {instead}, or another partition",
    )


PARTITIONERS: Mapping[str, Partitioner] = {
    "classes": Partitioner(_by_class(balanced), Cover.LABELS, per_class=True),
    "overlap": Partitioner(_overlap, Cover.SHARED, per_class=True),
    "disjoint-random": Partitioner(_by_class(disjoint_random), Cover.ALL, per_class=True),
    "niid-label": Partitioner(_by_class(niid_label), Cover.LABELS, per_class=True),
    "shards": Partitioner(_shards, Cover.ALL),
    "dirichlet": Partitioner(_dirichlet, Cover.ALL),
    "dirichlet-equal": Partitioner(_dirichlet_equal, Cover.ALL),
    "pachinko": Partitioner(_pachinko, Cover.ALL),
    "natural": Partitioner(_natural, Cover.GROUPS, by_label=False),
    "quantity": Partitioner(_quantity, Cover.ALL, by_label=False),
    "growing": Partitioner(_growing, Cover.SOME),
    "clusters": Partitioner(_clusters, Cover.ALL, by_label=False, by_inputs=True),
    "histograms": Partitioner(_histograms, Cover.SHARED, options=HistogramOptions),
    "iid": Partitioner(_iid, Cover.ALL, by_label=False),
}
"""By the name that the recipe's ``partition`` has."""


def _checked(name: str, member: object) -> Partitioner:
    """Return a package's object as a partition; a user's own may be a function that splits.

    Raises:
        ValueError: it is not one.
    """
    if is_own_class(name) and isinstance(member, FunctionType):
        return Partitioner(member, Cover.SOME)
    if not isinstance(member, Partitioner):
        raise ValueError("is no edgefed.extension.Partitioner")
    if not callable(member.split):
        raise ValueError("has no function that splits")
    if not isinstance(member.cover, Cover):
        raise ValueError("has a cover that is no Cover")
    options = member.options
    if options is None:
        return member
    if not (isinstance(options, type) and issubclass(options, Section)):
        raise ValueError("has options that are no subclass of Section")
    taken = sorted(options.model_fields.keys() & DataSection.model_fields.keys())
    if taken:
        raise ValueError(f"has an option '{taken[0]}', which is a key of every [data] table")
    return member


PARTITION_PLUGINS = Plugins(
    "partition",
    "edgefed.partitioners",
    lambda: PARTITIONERS,
    _checked,
    code="partition.plugin",
)
"""The partitions of installed packages."""


def partition_names() -> tuple[str, ...]:
    """Return the names that ``[data] partition`` may have."""
    return (*PARTITIONERS, *PARTITION_PLUGINS.names())


def find_partitioner(name: str) -> Partitioner | None:
    """Return the partition of a name; None if there is none.

    Raises:
        PluginError: a package offers it, but it cannot be used.
    """
    return PARTITIONERS.get(name) or PARTITION_PLUGINS.find(name)

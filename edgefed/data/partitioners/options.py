"""The keys of the recipe's data section that belong to its ``partition``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from edgefed.config.recipes.sections import Section


class PartitionOptions(Section):
    """Keys of the partitions, beside ``classes_per_device`` and ``alpha``."""

    min_samples: Annotated[int, Field(ge=1)] = 10
    """With ``dirichlet``, ``clusters``, ``growing``, ``quantity`` or ``natural``: minimum number of
    samples of a device."""

    balance: bool = True
    """With ``dirichlet``, ``clusters`` or ``growing``: a device that has its equal share gets no
    further label, or cluster."""

    clusters: Annotated[int, Field(ge=1, le=1000)] = 10
    """With ``clusters``: number of groups of similar inputs, by k-means; ``alpha`` is the
    concentration of each group's shares over the devices."""

    per_component: bool = False
    """With ``dirichlet-equal``: ``alpha`` is the concentration of every label, without
    multiplication by the label's share of the data."""

    shards_per_device: Annotated[int, Field(ge=1)] = 2
    """With ``shards``: number of equal pieces of the samples, sorted by label, that each device
    gets."""

    samples_per_device: Annotated[int, Field(ge=0)] = 0
    """With ``overlap``: number of samples of each device, or all samples of its labels where those
    are fewer; 0 for the number of samples divided by that of devices."""

    coarse_alpha: Annotated[float, Field(gt=0)] = 0.1
    """With ``pachinko``: concentration of a device's coarse labels."""

    fine_alpha: Annotated[float, Field(gt=0)] = 10.0
    """With ``pachinko``: concentration of the labels under each coarse label."""

    merge_groups: bool = False
    """With ``natural``: distribute all writers or roles, several to each device, instead of one to
    each device."""

    parts_per_device: Annotated[int, Field(ge=1, le=100_000)] = 1
    """Number of parts of the partition that each device holds. The data is partitioned, and each
    part transformed, as if each part were a device. One device with all parts trains on the pooled
    data of that many devices."""

    pieces: Annotated[int, Field(ge=1)] = 1
    """With ``growing``: number of equal pieces that the samples are divided into."""

    pieces_used: Annotated[int, Field(ge=1)] = 1
    """With ``growing``: number of these pieces that are partitioned over the devices."""

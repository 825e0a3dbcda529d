"""Divide a ``[data]`` table's further keys between its data set and a package's partition."""

from __future__ import annotations

from typing import Any

from edgefed.config.recipes.recipe import DataSection
from edgefed.config.recipes.sections import Section
from edgefed.data.partitioners.registry import find_partitioner


def dataset_keys_of(section: DataSection, options: type[Section]) -> dict[str, Any]:
    """Return the keys that the data set checks: all but those that only the partition has.

    Args:
        section: the recipe's ``[data]`` table.
        options: the model of the data set's keys.

    Raises:
        PluginError: a package offers the partition, but it cannot be used.
    """
    foreign = partition_options(section).model_fields.keys() - options.model_fields.keys()
    return {key: value for key, value in section.settings().items() if key not in foreign}


def partition_keys_of(section: DataSection) -> dict[str, Any]:
    """Return the keys that the partition checks: those that it declares.

    Raises:
        PluginError: a package offers the partition, but it cannot be used.
    """
    own = partition_options(section).model_fields
    return {key: value for key, value in section.settings().items() if key in own}


def partition_options(section: DataSection) -> type[Section]:
    """Return the model of the keys that the partition has to itself; without keys for most.

    Raises:
        PluginError: a package offers the partition, but it cannot be used.
    """
    partitioner = find_partitioner(section.partition)
    return Section if partitioner is None or partitioner.options is None else partitioner.options

"""The JSON Schema of a recipe, with the further keys of its open tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from edgefed.config.loading.schema import Kind, schema
from edgefed.config.recipes.recipe import AlgorithmSection, DataSection, ModelSection
from edgefed.config.recipes.selection_section import SelectionSection

Known = Mapping[str, tuple[type[BaseModel], str]]
"""The model of further keys, and a description in a line, by the value that has these keys."""


def full_schema(kind: Kind) -> dict[str, Any]:
    """Return the JSON Schema of a kind of file, with the keys of installed plug-ins.

    A table's further keys are described for each value of its ``name``, or ``partition``. Names
    that are not known here, such as a user's own model, take any further keys.
    """
    described = schema(kind)
    definitions = described.get("$defs", {})
    if kind == "settings":
        definitions["DashboardSettings"]["properties"]["keys"]["properties"] = _actions()
    for table, key, known in _open_tables():
        if table.__name__ not in definitions:
            continue
        default = str(table.model_fields[key].default)
        cases = [
            _case(key, name, name == default, settings, about, definitions)
            for name, (settings, about) in known.items()
        ]
        definitions[table.__name__].setdefault("allOf", []).extend(cases)
    return described


def simulation_keys() -> frozenset[str]:
    """Return the keys and tables that only simulations use: partitions, and virtual devices."""
    from edgefed.data.partitioners.options import PartitionOptions
    from edgefed.data.partitioners.registry import PARTITION_PLUGINS

    plugins = [partition.options for partition in PARTITION_PLUGINS.loaded().values()]
    options: list[type[BaseModel]] = [PartitionOptions, *(keys for keys in plugins if keys)]
    own = {"partition", "classes_per_device", "alpha"}
    own.update(key for keys in options for key in keys.model_fields)
    return frozenset({"simulation", "speeds", *(f"data.{key}" for key in own)})


def _actions() -> dict[str, Any]:
    """Return the actions of the dashboard, whose keys a user may choose, with their own keys."""
    from edgefed.tui.keys.actions import ACTIONS

    return {
        action.name: {"type": "string", "description": action.sentence, "default": action.key}
        for action in ACTIONS
    }


def _open_tables() -> Iterator[tuple[type[BaseModel], str, Known]]:
    """Return each table with the key that says which further keys it takes, and these keys."""
    from edgefed.algorithms.composed.registry import algorithms
    from edgefed.algorithms.selection.registry import SELECTOR_PLUGINS, SELECTORS
    from edgefed.data.partitioners.registry import PARTITION_PLUGINS
    from edgefed.data.sets.datasets import DATASET_PLUGINS, dataset_keys, dataset_summaries
    from edgefed.learn.modeling.model_building import NETWORK_PLUGINS, NETWORKS

    networks = {**NETWORKS, **NETWORK_PLUGINS.loaded()}
    described = {name: (network.settings, network.summary) for name, network in networks.items()}
    yield ModelSection, "name", described
    summaries = dataset_summaries()
    own = {name: (keys, summaries[name]) for name, keys in dataset_keys().items()}
    readers = {
        name: (reader.options, reader.summary) for name, reader in DATASET_PLUGINS.loaded().items()
    }
    yield DataSection, "name", {**own, **readers}
    partitions = {
        name: (partition.options, partition.summary)
        for name, partition in PARTITION_PLUGINS.loaded().items()
        if partition.options is not None
    }
    yield DataSection, "partition", partitions
    kinds = {name: (kind.Settings, kind.summary) for name, kind in algorithms().items()}
    yield AlgorithmSection, "name", kinds
    selectors = {**SELECTORS, **SELECTOR_PLUGINS.loaded()}
    yield SelectionSection, "name", {n: (k.Settings, k.summary) for n, k in selectors.items()}


def _case(
    key: str,
    name: str,
    is_default: bool,
    settings: type[BaseModel],
    about: str,
    definitions: dict[str, Any],
) -> dict[str, Any]:
    """Return the further keys of a table whose ``key`` has this value.

    A table without the key has its default. Definitions that the keys refer to are added.
    """
    described = settings.model_json_schema()
    for title, definition in described.pop("$defs", {}).items():
        definitions.setdefault(title, definition)
    condition: dict[str, Any] = {"properties": {key: {"const": name}}}
    if not is_default:
        condition["required"] = [key]
    then: dict[str, Any] = {"properties": described.get("properties", {})}
    if about:
        then["description"] = about
    if "required" in described:
        then["required"] = described["required"]
    return {"if": condition, "then": then}

"""All plug-ins of installed packages, of every kind: for lists and checks."""

from __future__ import annotations

from edgefed.algorithms.registry import PLUGINS
from edgefed.data.datasets import DATASET_PLUGINS
from edgefed.data.partitioners.registry import PARTITION_PLUGINS
from edgefed.learn.model_building import NETWORK_PLUGINS
from edgefed.plugins import Listed


def installed_plugins() -> list[Listed]:
    """Return all plug-ins, those that cannot be used too; all of them are imported."""
    kinds = (PLUGINS, NETWORK_PLUGINS, DATASET_PLUGINS, PARTITION_PLUGINS)
    return [plugin for kind in kinds for plugin in kind.listed()]

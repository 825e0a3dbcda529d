"""All plug-ins of installed packages, of every kind: for lists and checks."""

from __future__ import annotations

from edgefed.algorithms.composed.registry import PLUGINS
from edgefed.algorithms.selection.registry import SELECTOR_PLUGINS
from edgefed.config.fleet.tracker_names import TRACKER_PLUGINS
from edgefed.data.partitioners.registry import PARTITION_PLUGINS
from edgefed.data.sets.datasets import DATASET_PLUGINS
from edgefed.files.plugins import Listed
from edgefed.learn.modeling.model_building import NETWORK_PLUGINS


def installed_plugins() -> list[Listed]:
    """Return all plug-ins, those that cannot be used too; all of them are imported."""
    kinds = (
        PLUGINS,
        NETWORK_PLUGINS,
        DATASET_PLUGINS,
        PARTITION_PLUGINS,
        SELECTOR_PLUGINS,
        TRACKER_PLUGINS,
    )
    return [plugin for kind in kinds for plugin in kind.listed()]

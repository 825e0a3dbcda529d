"""Agreement of a run's clusters with planted ones: devices with the same label permutation.

A device belongs to the expert with its largest share. The accuracy matches experts and clusters one
to one as well as possible; the purity matches each expert with its most frequent cluster, so that
more experts than clusters may still reach 1.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgefed.config.recipes.recipe import Recipe
from edgefed.data.base.types import Array
from edgefed.data.devices.partition import planted_orders
from edgefed.events.base.method_tables import TableChange
from edgefed.events.base.model import Event
from edgefed.events.methods.expert_tables import MIXTURES, mixture_of
from edgefed.simulator.local_fleet import device_names

MOST = 12
"""Most clusters: matching takes 2 to that power steps for each expert."""


class PlantedClusters:
    """Follows the mixtures of a simulated run's devices.

    Args:
        recipe: of the run; one without planted clusters has no scores.
    """

    def __init__(self, recipe: Recipe) -> None:
        simulation = recipe.simulation
        planted = planted_orders(recipe.data, simulation.devices, recipe.seed)
        names = device_names(simulation.devices)
        self._planted = dict(zip(names, planted.tolist(), strict=True)) if len(planted) else {}
        self._clusters: dict[str, int] = {}

    def hear(self, event: Event) -> None:
        """Note the mixtures that an event has."""
        if event.kind != "table" or event.fields["name"] != MIXTURES or not self._planted:
            return
        view = TableChange.of(event.fields).view
        for mixture in map(mixture_of, view.table.rows if view is not None else ()):
            self._clusters[mixture["device"]] = int(np.argmax(mixture["shares"]))

    def scores(self) -> dict[str, float]:
        """Return accuracy and purity over all devices; nothing without experts or clusters."""
        if not self._clusters or len(set(self._planted.values())) > MOST:
            return {}
        counts = overlaps(self._planted, self._clusters)
        devices = len(self._planted)
        return {
            "cluster_accuracy": matched(counts) / devices,
            "cluster_purity": int(counts.max(axis=1).sum()) / devices,
        }


def overlaps(planted: Mapping[str, int], experts: Mapping[str, int]) -> Array:
    """Return how many devices each expert shares with each cluster, int64 (experts, clusters)."""
    counts = np.zeros((max(experts.values()) + 1, max(planted.values()) + 1), np.int64)
    for device, expert in experts.items():
        counts[expert, planted[device]] += 1
    return counts


def matched(counts: Array) -> int:
    """Return the largest sum of counts in which no row and no column occurs twice.

    Args:
        counts: integers from 0 (experts, clusters).
    """
    best = {0: 0}
    for row in counts.tolist():
        # A copy, as best grows meanwhile: from one row, one cluster only is taken
        for taken, total in tuple(best.items()):
            for cluster, count in enumerate(row):
                after = taken | 1 << cluster
                if after != taken:
                    best[after] = max(best.get(after, 0), total + count)
    return max(best.values())

"""The growth of a matched network over a device's, and the remark that layers reached its bound."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from edgefed.algorithms.base import Remark
from edgefed.algorithms.match_report import LayerMatch
from edgefed.algorithms.matching_settings import MatchingSettings
from edgefed.learn.permutation_groups import PermutationGroups
from edgefed.learn.types import Tensors


def growth_of(weights: Tensors, local: PermutationGroups) -> float:
    """Return the number of a global network's weights divided by that of a device's.

    Args:
        weights: of the global network, all of them.
        local: groups of a device's network.
    """
    own = sum(prod(local.shape_of(name, array.shape)) for name, array in weights.items())
    return sum(array.size for array in weights.values()) / own


def bound_remarks(
    settings: MatchingSettings, number: int, layers: Iterable[LayerMatch]
) -> list[Remark]:
    """Return the remark that layers are as wide as ``most_growth`` allows; none without such.

    Args:
        settings: of the algorithm.
        number: of the round.
        layers: those that were matched.
    """
    reached = [
        each.layer for each in layers if each.atoms >= settings.most_atoms(each.local) > each.local
    ]
    if not reached:
        return []
    text = f"{', '.join(reached)} reached the bound of growth"
    return [Remark(f"round {number}: {text} (most_growth = {settings.most_growth:g})", True)]

"""The growth of a matched network over a device's, and remarks about layers at a bound."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from edgefed.algorithms.interface.answer import Remark
from edgefed.algorithms.matched.matched_layers import LayerMatch
from edgefed.algorithms.matched.matching_settings import MatchingSettings
from edgefed.learn.base.permutation_groups import PermutationGroups
from edgefed.learn.base.types import Tensors


def growth_of(weights: Tensors, local: PermutationGroups) -> float:
    """Return the number of a global network's weights divided by that of a device's.

    Args:
        weights: of the global network, all of them.
        local: groups of a device's network.
    """
    own = sum(prod(local.shape_of(name, array.shape)) for name, array in weights.items())
    return sum(array.size for array in weights.values()) / own


def growth_metric(growth: float | None) -> dict[str, float]:
    """Return the growth as the row of a round has it; nothing before the first complete round."""
    return {} if growth is None else {"growth": growth}


APART = 0.7
"""From here on units hardly have anything in common with their atoms, as far as weights tell."""


def bound_remarks(
    settings: MatchingSettings,
    number: int,
    layers: Iterable[LayerMatch],
    before: Iterable[LayerMatch],
) -> list[Remark]:
    """Return remarks about layers that reached a bound of growth or of their variance.

    Args:
        settings: of the algorithm.
        number: of the round.
        layers: those that were matched.
        before: the layers after the previous round; their variance is not reported again.
    """
    remarks = []
    layers = list(layers)
    reached = [
        layer.layer
        for layer in layers
        if layer.atoms >= settings.most_atoms(layer.local) > layer.local
    ]
    if reached:
        text = f"{', '.join(reached)} reached the bound of growth"
        text = f"round {number}: {text} (most_growth = {settings.most_growth:g})"
        remarks.append(Remark(text, warning=True))
    said = {layer.layer for layer in before if layer.apart > APART}
    apart = [layer.layer for layer in layers if layer.apart > APART and layer.layer not in said]
    if apart and settings.match_settings(1).sigma == "auto":
        text = "the devices' units have hardly anything in common, so that many different ones may"
        ways = "set algorithm.sigma, or start from common weights and train less before matching"
        text = f"round {number}: {', '.join(apart)}: {text} share a unit now; {ways}"
        remarks.append(Remark(text, warning=True))
    return remarks

"""The layers that matched averaging matches, with their last results, and their table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgefed.events.base.method_tables import MethodTable
from edgefed.events.methods.matching_table import layer_row, layer_table

_DIGITS = 4
"""Decimal places of the numbers in the table."""


@dataclass(frozen=True)
class LayerMatch:
    """The last matching of one layer.

    Attributes:
        layer: name of the layer.
        local: number of its units on a device.
        atoms: number of its units in the global model; 0 before it was matched.
        holders: mean number of devices that hold an atom; 0 before it was matched.
        objective: log-posterior of the matching, up to a constant; None where none was computed,
            as for a layer that follows another one's matching.
        apart: mean square of units around their atoms as a fraction of that of all units; 0 where
            none was computed.
    """

    layer: str
    local: int
    atoms: int = 0
    holders: float = 0.0
    objective: float | None = None
    apart: float = 0.0


def matched_table(
    layers: Sequence[LayerMatch], number: int, matched: int, devices: int, growth: float | None
) -> MethodTable:
    """Return the table of all layers, in the order of the network.

    Args:
        layers: every layer whose units are matched.
        number: the round in which the first ``matched`` layers were matched; the others' matches
            are of the round before. 0 before the first.
        matched: how many layers these are.
        devices: number of devices that take part in the round.
        growth: parameters of the last complete global model divided by a device's; None before the
            first round is complete.
    """
    rows = [
        layer_row(
            layer.layer,
            layer.local,
            layer.atoms,
            _rounded(layer.holders) or 0.0,
            _rounded(layer.objective),
            number if place < matched else number - 1,
        )
        for place, layer in enumerate(layers)
    ]
    return layer_table(rows, number, devices, _rounded(growth))


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(float(value), _DIGITS)

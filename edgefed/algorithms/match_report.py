"""The report of matched averaging: the widths that each layer's matching found."""

from __future__ import annotations

from dataclasses import dataclass


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


@dataclass(frozen=True)
class MatchReport:
    """The report on the layers; empty, with no layers, for an algorithm without matching.

    Attributes:
        round: the round in which ``matched`` layers were matched; 0 before the first.
        layers: every layer whose units are matched, in the order of the network.
        matched: number of layers matched in this round; the others' matches are of the round
            before.
        devices: number of devices that take part in this round.
        growth: parameters of the last complete global model divided by a device's; None before the
            first round is complete.
    """

    round: int = 0
    layers: tuple[LayerMatch, ...] = ()
    matched: int = 0
    devices: int = 0
    growth: float | None = None

"""The permutation groups of the character LSTM.

A hidden unit has an entry in each gate's block of rows, and one among the columns of each block of
the weights from the layer's last output; these are therefore permuted on both axes. The numbers of
a token's embedding are units, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgefed.learn.base.permutation_groups import Layer, PermutationGroups, Segment, combined
from edgefed.learn.networks.layer_groups import Described, affine

EMBEDDING = "embedding"
GATES = 4


def lstm_groups(embedding: int, widths: Sequence[int]) -> PermutationGroups:
    """Return a group for the embedding, and one for each LSTM layer (``lstm_l0`` …).

    Args:
        embedding: size of a token's embedding.
        widths: units of each LSTM layer.
    """
    weight = f"{EMBEDDING}.weight"
    table = Layer(EMBEDDING, (weight,), (EMBEDDING,), (), (weight,))
    layers: list[Described] = [(table, {(weight, 1): (Segment(EMBEDDING),)})]
    before = EMBEDDING
    for number in range(len(widths)):
        layers.append(_lstm_layer(number, before))
        before = group_of(number)
    layers.append(affine("decoder", (), (Segment(before),)))
    sizes = {group_of(number): width for number, width in enumerate(widths)}
    return combined({EMBEDDING: embedding, **sizes}, layers)


def group_of(number: int) -> str:
    """Return the group of an LSTM layer's units."""
    return f"lstm_l{number}"


def _lstm_layer(number: int, before: str) -> Described:
    """Return an LSTM layer; its units are matched by their inputs from the layer before."""
    group = group_of(number)
    parts = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    weights = tuple(f"lstm.{part}_l{number}" for part in parts)
    gates = (Segment(group),) * GATES
    axes = {(weight, 0): gates for weight in weights}
    axes |= {(weights[0], 1): (Segment(before),), (weights[1], 1): (Segment(group),)}
    return Layer(group, weights, (group,), (before,), (weights[0], weights[2])), axes

"""Describe the layers of a network for its permutation groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgefed.learn.base.permutation_groups import Layer, Segment, Segments
from edgefed.learn.networks.norms import NormName

Described = tuple[Layer, Mapping[tuple[str, int], Segments]]
"""A layer, and the segments of its weights' axes by weight and axis."""

SCALE_AND_SHIFT = ("weight", "bias")
STATISTICS = ("running_mean", "running_var")


def affine(
    name: str,
    outputs: Segments = (),
    inputs: Segments = (),
    *,
    bias: bool = True,
    norm: str = "",
    running: bool = True,
) -> Described:
    """Return a convolution or a fully connected layer, with the normalisation behind it.

    Args:
        name: of the module; its weight has outputs on axis 0 and inputs on axis 1.
        outputs: segments of its outputs; none for the output layer.
        inputs: segments of its inputs; none for the network's own inputs.
        bias: whether it has one.
        norm: name of the normalisation behind it; empty for none.
        running: whether that has running statistics.
    """
    compared = [f"{name}.weight"] + [f"{name}.bias"] * bias
    kept: list[str] = []
    if norm:
        compared += [f"{norm}.{part}" for part in SCALE_AND_SHIFT]
        kept = [f"{norm}.{part}" for part in STATISTICS] if running else []
    axes: dict[tuple[str, int], Segments] = {}
    if outputs:
        axes |= {(weight, 0): outputs for weight in (*compared, *kept)}
    if inputs:
        axes[f"{name}.weight", 1] = inputs
    counters = [f"{norm}.num_batches_tracked"] * bool(kept)
    weights = (*compared, *kept, *counters)
    return Layer(name, weights, names(outputs), names(inputs), tuple(compared)), axes


def chain(names_and_blocks: Sequence[tuple[str, int]]) -> list[Described]:
    """Return layers of which each takes the outputs of the one before, without normalisation.

    The group of a layer's units has the layer's name; the last layer is the output layer.

    Args:
        names_and_blocks: name of each layer, and how many of its inputs belong to each unit of the
            layer before: 1, but height × width behind a flatten.
    """
    described = []
    inputs: Segments = ()
    for number, (name, block) in enumerate(names_and_blocks, start=1):
        inputs = tuple(Segment(segment.group, block) for segment in inputs)
        outputs = (Segment(name),) if number < len(names_and_blocks) else ()
        described.append(affine(name, outputs, inputs))
        inputs = outputs
    return described


def norm_groups(norm: NormName, groups: int, layers: Sequence[Described]) -> dict[str, int]:
    """Return the number of groups of channels by the weight of each group normalisation."""
    if norm == "batch":
        return {}
    scales = (layer.compared[-2] for layer, _ in layers if layer.outputs)
    return dict.fromkeys(scales, groups)


def names(segments: Segments) -> tuple[str, ...]:
    """Return the groups of an axis, each once."""
    return tuple(dict.fromkeys(segment.group for segment in segments))

"""Merge one layer of all devices: match its units, and average those that are the same.

Wang et al., ICLR 2020, algorithm 1. Every device sends its layer with the inputs in the order and
width of the global model; the outputs are its own units. ``matching.match_layer`` finds which
units are the same, and each weight of the global layer is the mean over the devices that have it:

    W[i, ...] = sum_j p_j W_j[l, ...] / sum_j p_j     over the devices j whose unit l is atom i

The recurrent weights of an LSTM have units on both axes, so an entry is averaged over the devices
that have both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgefed.learn.base.permutation_groups import Layer, PermutationGroups
from edgefed.learn.base.types import Array, Tensors
from edgefed.learn.base.unit_moves import Assignments, held, scatter, set_unit_vectors, unit_vectors
from edgefed.learn.matching.layer import Matched
from edgefed.learn.matching.steps import MatchingStep

Match = Callable[[str, Sequence[Array], Sequence[Tensors]], Matched]
"""A group, and each device's unit vectors (units, numbers) and weights, to their matching."""


@dataclass(frozen=True)
class DeviceLayer:
    """One device's part of a step.

    Attributes:
        weights: of the step's layers.
        atoms: its assignments of the groups that earlier steps decided.
        share: its weight in a mean.
    """

    weights: Tensors
    atoms: Assignments
    share: float = 1.0


@dataclass(frozen=True)
class MergedStep:
    """The result of a step.

    Attributes:
        weights: of the global model's layers.
        groups: the network's, with the widths that were found.
        matches: by group that the step decided.
    """

    weights: Tensors
    groups: PermutationGroups
    matches: Mapping[str, Matched]


@dataclass(frozen=True)
class LayerAveraging:
    """How units that are the same are averaged.

    Attributes:
        use_atoms: take the compared weights as the matching averaged them.
        pad_recurrent: divide recurrent weights by the sum of all shares, as if a device without a
            unit had zeros there.
        pad_all: divide all weights by the sum of all shares.
    """

    use_atoms: bool = False
    pad_recurrent: bool = False
    pad_all: bool = False


def merge_step(
    step: MatchingStep,
    groups: PermutationGroups,
    devices: Sequence[DeviceLayer],
    match: Match,
    averaging: LayerAveraging,
) -> MergedStep:
    """Return the layers of the global model.

    Args:
        step: the layers to merge; not the output layer.
        groups: the network that ``devices`` have in this step: the groups that are decided have
            the global model's widths.
        devices: in an order that does not depend on when they answered.
        match: matches the units of a group.
        averaging: see there.
    """
    matches = {group: _matched(group, step, groups, devices, match) for group in step.decides}
    after = groups.resized({group: len(matched.counts) for group, matched in matches.items()})
    new = [
        {group: matched.assignments[number] for group, matched in matches.items()}
        for number in range(len(devices))
    ]
    own = [{**device.atoms, **atoms} for device, atoms in zip(devices, new, strict=True)]
    shares = [device.share for device in devices]
    merged: Tensors = {}
    for name in step.weights:
        parts = [
            scatter({name: device.weights[name]}, groups, after, atoms)[name]
            for device, atoms in zip(devices, new, strict=True)
        ]
        # Without groups to look up, each device counts as having all entries
        counted = () if _is_padded(name, step, after, averaging) else step.outputs
        masks = [
            held(name, after, {group: atoms[group] for group in counted}, part.shape)
            for atoms, part in zip(own, parts, strict=True)
        ]
        merged[name] = masked_mean(parts, masks, shares, after.padding.get(name, 0.0))
    if averaging.use_atoms:
        for group, matched in matches.items():
            set_unit_vectors(merged, after, step.compared, group, matched.atoms)
    return MergedStep(merged, after, matches)


def _matched(
    group: str,
    step: MatchingStep,
    groups: PermutationGroups,
    devices: Sequence[DeviceLayer],
    match: Match,
) -> Matched:
    """Return the matching of a group that a step decides."""
    weights = [device.weights for device in devices]
    vectors = [unit_vectors(weight, groups, step.compared, group) for weight in weights]
    return match(group, vectors, weights)


def _is_padded(
    name: str, step: MatchingStep, groups: PermutationGroups, averaging: LayerAveraging
) -> bool:
    """Return whether devices without an entry of a weight count as if they had the padding."""
    if averaging.pad_all or not averaging.pad_recurrent:
        return averaging.pad_all
    return any(is_recurrent(name, groups, output) for output in step.outputs)


def merge_output(layer: Layer, devices: Sequence[Tensors], proportions: Array) -> Tensors:
    """Return the output layer: each class's row is a mean weighted by the devices' shares of it.

    Args:
        layer: whose weights have classes on axis 0.
        devices: the layer's weights of each device.
        proportions: (devices, classes), the weight of each device for a class; they sum to 1 over
            devices.
    """
    merged: Tensors = {}
    for name in layer.weights:
        total = np.zeros(devices[0][name].shape)
        for weights, shares in zip(devices, proportions, strict=True):
            total += shares.reshape(-1, *(1,) * (total.ndim - 1)) * weights[name]
        merged[name] = total.astype(devices[0][name].dtype)
    return merged


def class_proportions(counts: Array) -> Array:
    """Return each device's share of each class: p_jc = n_jc / sum_j n_jc.

    A class of which nobody has a sample weighs all devices equally.

    Args:
        counts: samples (devices, classes).
    """
    totals = counts.sum(axis=0)
    equal = np.full(counts.shape, 1 / len(counts))
    return np.where(totals > 0, counts / np.where(totals > 0, totals, 1), equal)


def masked_mean(
    parts: Sequence[Array], masks: Sequence[Array], shares: Sequence[float], padding: float
) -> Array:
    """Return the weighted mean over those parts that have an entry; where none has, the padding."""
    total = np.zeros(parts[0].shape)
    weight = np.zeros(parts[0].shape)
    for part, mask, share in zip(parts, masks, shares, strict=True):
        total += np.where(mask, share * part.astype(np.float64), 0.0)
        weight += np.where(mask, share, 0.0)
    mean = np.where(weight > 0, total / np.where(weight > 0, weight, 1.0), padding)
    return mean.astype(parts[0].dtype)


def is_recurrent(name: str, groups: PermutationGroups, group: str) -> bool:
    """Return whether a weight leads from a group's units to themselves."""
    axes = groups.axes_of(name).values()
    return sum(any(part.group == group for part in segments) for segments in axes) > 1


def recurrent_blocks(
    devices: Sequence[Tensors], groups: PermutationGroups, group: str
) -> list[Array]:
    """Return the weights from a group's units to themselves, of each device (gates, units, units).

    Returns:
        Nothing for a group that has none.
    """
    names = [name for name in devices[0] if is_recurrent(name, groups, group)]
    width = groups.widths[group]
    return [
        np.concatenate([weights[name].reshape(-1, width, width) for name in names])
        for weights in devices
        if names
    ]

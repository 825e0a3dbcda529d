"""Permutation groups: which entries of a network's weights must be permuted together.

The units of a layer (its neurons, channels or hidden units) have no order: a network computes the
same function when they are permuted in every weight that they are part of. Such a set of (weight,
axis, block) is called a permutation group in Ainsworth, Hayase, Srinivasa: Git Re-Basin, ICLR 2023.
Matched averaging uses only this description of a network; widths, order, scattering and gathering
(``unit_moves``) follow from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from edgefed.learn.base.types import Array

Half = Literal["all", "low", "high"]
"""The units that a segment has: all, the first half of them (rounded down), or the others."""


@dataclass(frozen=True)
class Segment:
    """A part of an axis that consists of the units of one group, in their order.

    Attributes:
        group: name of the permutation group.
        block: consecutive entries that belong to each unit, as height × width behind a flatten.
        half: which of the group's units it has.
    """

    group: str
    block: int = 1
    half: Half = "all"

    def units(self, width: int) -> Array:
        """Return the numbers of its units in a group of ``width``."""
        middle = width // 2
        bounds = {"all": (0, width), "low": (0, middle), "high": (middle, width)}
        return np.arange(*bounds[self.half])


Segments = tuple[Segment, ...]
"""An axis, from its first entry to its last. A group that has several segments of an axis has as
many entries for each unit: an LSTM's four gates are four segments of one group."""


@dataclass(frozen=True)
class Layer:
    """The weights that make the units of a group, or the network's output.

    Attributes:
        name: as in the names of its weights.
        weights: names of its weights, and of those of the layer that normalises its output.
        outputs: groups of its units; none for the output layer, whose order is that of classes.
        inputs: groups of its inputs.
        compared: names of the weights by which its units are matched.
    """

    name: str
    weights: tuple[str, ...]
    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    compared: tuple[str, ...]


@dataclass(frozen=True)
class PermutationGroups:
    """The permutation groups of one network.

    Attributes:
        widths: units of each group.
        layers: in the order in which data pass them; the output layer is the last.
        axes: by weight and axis, the segments of those axes that have groups.
        padding: by weight, the value of an entry that belongs to no unit, where it is not 0.
        norm_groups: by weight of a group normalisation, its number of groups of channels.
    """

    widths: Mapping[str, int]
    layers: tuple[Layer, ...]
    axes: Mapping[tuple[str, int], Segments]
    padding: Mapping[str, float]
    norm_groups: Mapping[str, int]

    def resized(self, widths: Mapping[str, int]) -> PermutationGroups:
        """Return the groups of the same network with other widths; those left out stay."""
        return replace(self, widths={**self.widths, **widths})

    def axes_of(self, weight: str) -> dict[int, Segments]:
        """Return the axes of a weight that have groups."""
        return {axis: segments for (name, axis), segments in self.axes.items() if name == weight}

    def entries(self, segments: Segments) -> dict[str, Array]:
        """Return where each unit's entries are on an axis: by group, int64 (units, entries)."""
        units: dict[str, list[Array]] = {}
        places: dict[str, list[Array]] = {}
        start = 0
        for segment in segments:
            own = segment.units(self.widths[segment.group])
            count = len(own) * segment.block
            units.setdefault(segment.group, []).append(np.repeat(own, segment.block))
            places.setdefault(segment.group, []).append(np.arange(start, start + count))
            start += count
        return {
            group: _by_unit(np.concatenate(units[group]), np.concatenate(places[group]))
            for group in units
        }

    def size(self, segments: Segments) -> int:
        """Return the number of entries of an axis."""
        return sum(
            len(segment.units(self.widths[segment.group])) * segment.block for segment in segments
        )

    def shape_of(self, weight: str, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of a weight in these widths.

        Args:
            weight: its name.
            shape: its shape in any widths.
        """
        axes = self.axes_of(weight)
        return tuple(
            self.size(axes[axis]) if axis in axes else size for axis, size in enumerate(shape)
        )

    def unit_classes(self, group: str) -> Array | None:
        """Return a class for each unit, int64 (units,); a permutation must keep each in its class.

        Units are of one class if every group normalisation has them in the same group of channels.
        None where no group normalisation sees them.
        """
        marks = []
        for name, count in self.norm_groups.items():
            segments = self.axes[name, 0]
            places = self.entries(segments).get(group)
            if places is not None:
                marks.append(places[:, 0] * count // self.size(segments))
        if not marks:
            return None
        numbers: Array = np.unique(np.stack(marks, axis=1), axis=0, return_inverse=True)[1]
        return numbers.reshape(-1)


def _by_unit(units: Array, places: Array) -> Array:
    """Return places (units, entries), given the unit of each, ordered as on the axis."""
    order = np.argsort(units, kind="stable")
    return places[order].reshape(len(np.unique(units)), -1)


def combined(
    widths: Mapping[str, int],
    parts: Iterable[tuple[Layer, Mapping[tuple[str, int], Segments]]],
    norm_groups: Mapping[str, int] | None = None,
) -> PermutationGroups:
    """Return the groups of a network from its layers, each with the axes of its weights."""
    layers: list[Layer] = []
    axes: dict[tuple[str, int], Segments] = {}
    for layer, own in parts:
        layers.append(layer)
        axes |= own
    padding = {name: 1.0 for layer in layers for name in layer.weights if is_variance(name)}
    return PermutationGroups(widths, tuple(layers), axes, padding, norm_groups or {})


def is_variance(name: str) -> bool:
    """Return whether a weight holds batch normalisation's running variances."""
    return name.rpartition(".")[2] == "running_var"

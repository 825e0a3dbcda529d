"""Scatter a device's units to the atoms of a global model, and gather them from it.

With an assignment a (units,) of a permutation group to atoms, scattering a weight W along an axis
of that group gives W', in which the entries of atom a[l] are those of unit l, and all others are
padding; gathering takes them out again, so gather(scatter(W)) = W.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from edgefed.learn.base.permutation_groups import PermutationGroups, Segments
from edgefed.learn.base.types import Array, Tensors

Assignments = Mapping[str, Array]
"""By permutation group, the atom of each unit: int64 (units,), no atom twice."""


def scatter(
    weights: Tensors, local: PermutationGroups, matched: PermutationGroups, atoms: Assignments
) -> Tensors:
    """Return weights of a network in the widths and the order of another.

    Args:
        weights: some or all of the ``local`` network's.
        local: the network that they are of.
        matched: the same network with the widths of the result.
        atoms: where units go; those of other groups stay, and their widths are equal.
    """
    return {name: _scattered(array, name, local, matched, atoms) for name, array in weights.items()}


def gather(
    weights: Tensors, local: PermutationGroups, matched: PermutationGroups, atoms: Assignments
) -> Tensors:
    """Return the part of the ``matched`` network's weights that a device's units have.

    Args:
        weights: some or all of the ``matched`` network's.
        local: the network of the result.
        matched: the network that they are of.
        atoms: the atom of each unit; other groups stay, and their widths are equal.
    """
    gathered = {}
    for name, array in weights.items():
        part = array
        for axis, segments in local.axes_of(name).items():
            part = part.take(_places(segments, local, matched, atoms), axis)
        gathered[name] = np.array(part, order="C")
    return gathered


def most_held(counts: Tensors, widths: Mapping[str, int]) -> Tensors:
    """Return the atoms that most devices have, in their order: int32 (units,) by group.

    Args:
        counts: by group, how many devices have each atom.
        widths: by group, how many atoms to return.
    """
    return {
        group: np.sort(np.argsort(-array, kind="stable")[: widths[group]]).astype(np.int32)
        for group, array in counts.items()
    }


def held(name: str, groups: PermutationGroups, atoms: Assignments, shape: tuple[int, ...]) -> Array:
    """Return which entries of a weight belong to a device's units: bool, as ``shape`` broadcasts.

    Args:
        name: of the weight.
        groups: of the network that the weight is of.
        atoms: the atom of each of the device's units; only these groups count.
        shape: of the weight.
    """
    mask = np.ones((1,) * len(shape), bool)
    for axis, segments in groups.axes_of(name).items():
        if not any(segment.group in atoms for segment in segments):
            continue
        own = np.ones(shape[axis], bool)
        for group, entries in groups.entries(segments).items():
            if group in atoms:
                own[np.delete(entries, atoms[group], axis=0).ravel()] = False
        mask = mask & own.reshape([-1 if dim == axis else 1 for dim in range(len(shape))])
    return mask


def unit_vectors(
    weights: Tensors, groups: PermutationGroups, names: Sequence[str], group: str
) -> Array:
    """Return the parts of some weights for each unit of a group, side by side: (units, numbers)."""
    parts = []
    for name, axis, entries in _parts(groups, names, group):
        taken = np.moveaxis(weights[name], axis, 0)[entries.ravel()]
        parts.append(taken.reshape(len(entries), -1))
    return np.concatenate(parts, axis=1)


def set_unit_vectors(
    weights: Tensors, groups: PermutationGroups, names: Sequence[str], group: str, vectors: Array
) -> None:
    """Write vectors, as ``unit_vectors`` returns them, into weights."""
    start = 0
    for name, axis, entries in _parts(groups, names, group):
        view = np.moveaxis(weights[name], axis, 0)
        rest = view.shape[1:]
        size = entries.shape[1] * int(np.prod(rest))
        part = vectors[:, start : start + size].reshape(-1, *rest)
        view[entries.ravel()] = part.astype(view.dtype)
        start += size


def _parts(
    groups: PermutationGroups, names: Sequence[str], group: str
) -> Iterator[tuple[str, int, Array]]:
    """Yield the weights that have a group's units, with the axis and the entries of each unit."""
    for name in names:
        for axis, segments in groups.axes_of(name).items():
            entries = groups.entries(segments).get(group)
            if entries is not None:
                yield name, axis, entries
                break


def _scattered(
    array: Array,
    name: str,
    local: PermutationGroups,
    matched: PermutationGroups,
    atoms: Assignments,
) -> Array:
    wide = np.array(array)
    for axis, segments in local.axes_of(name).items():
        places = _places(segments, local, matched, atoms)
        narrow, shape = wide, list(wide.shape)
        shape[axis] = matched.size(segments)
        wide = np.full(shape, local.padding.get(name, 0), array.dtype)
        np.moveaxis(wide, axis, 0)[places] = np.moveaxis(narrow, axis, 0)
    return wide


def _places(
    segments: Segments, local: PermutationGroups, matched: PermutationGroups, atoms: Assignments
) -> Array:
    """Return, for each entry of a local axis, its place on the matched one: int64."""
    there = matched.entries(segments)
    places = np.empty(local.size(segments), np.int64)
    for group, entries in local.entries(segments).items():
        target = there[group][atoms[group]] if group in atoms else there[group]
        places[entries] = target
    return places

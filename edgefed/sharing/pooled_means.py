"""Pool the averaged data of all devices in one stack that does not reveal their origin.

FedMix, section 3.4 (shuffling hides the owner) and appendix J (averaging m entries again). Entries
are sorted by their contents before they are shuffled. An attacker that guesses the seed, which is
often 1, can undo the shuffle but learns nothing about the owners.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from edgefed.seeds import generator
from edgefed.sharing.groups import random_groups
from edgefed.sharing.types import Array, Entries, Indices

Owners = dict[str, list[int]]
"""The rows of the stack that hold something of a device, by device."""


def stack(
    shares: Mapping[str, Entries], seed: int, *, merge_entries: int = 1, shuffle: bool = True
) -> tuple[Entries, Owners]:
    """Return all entries as one stack, and their owners.

    The order in which shares arrived does not matter.

    Args:
        shares: by device; at least one.
        seed: of the shuffle.
        merge_entries: m; every entry of the stack is the plain mean of so many, or of a few more
            where they do not come out even.
        shuffle: whether the rows' order discloses nothing about their owners.
    """
    devices = sorted(shares)
    inputs = np.concatenate([shares[device].inputs for device in devices])
    targets = np.concatenate([shares[device].targets for device in devices])
    owner = np.repeat(np.arange(len(devices)), [len(shares[device]) for device in devices])
    order = _by_content(inputs, targets) if shuffle else np.arange(len(owner))
    rows = [order[row] for row in _rows(len(owner), merge_entries, shuffle, seed)]
    owners: Owners = {device: [] for device in devices}
    for number, row in enumerate(rows):
        for index in np.unique(owner[row]):
            owners[devices[index]].append(number)
    if all(len(row) == 1 for row in rows):
        order = np.concatenate(rows)
        return Entries(inputs[order], targets[order]), owners
    return Entries(_means(inputs, rows), _means(targets, rows)), owners


def as_noise(entries: Entries, seed: int) -> Entries:
    """Return entries whose inputs are standard normal noise: the ablation of appendix D."""
    noise = generator(seed, "noise").standard_normal(entries.inputs.shape, dtype=np.float32)
    return Entries(noise, entries.targets)


def runs_of(rows: Sequence[int]) -> list[list[int]]:
    """Return rising row numbers as runs [start, stop), which are short to send."""
    runs: list[list[int]] = []
    for row in rows:
        if runs and runs[-1][1] == row:
            runs[-1][1] = row + 1
        else:
            runs.append([row, row + 1])
    return runs


def kept_of(runs: Sequence[Sequence[int]], count: int) -> npt.NDArray[np.bool_]:
    """Return for each of ``count`` rows whether it is in none of the runs."""
    keep = np.ones(count, bool)
    for start, stop in runs:
        keep[max(0, start) : max(0, stop)] = False
    return keep


def _by_content(inputs: Array, targets: Array) -> Indices:
    """Return an order of the entries that depends on their contents only."""
    pairs = zip(inputs, targets, strict=True)
    keys = [hashlib.sha256(one.tobytes() + other.tobytes()).digest() for one, other in pairs]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__))


def _rows(count: int, merge_entries: int, shuffle: bool, seed: int) -> list[Indices]:
    """Return which entries make each row of the stack."""
    if not shuffle and merge_entries == 1:
        return list(np.arange(count)[:, None])
    return random_groups(count, merge_entries, generator(seed, "stack"))


def _means(values: Array, rows: Sequence[Indices]) -> Array:
    """Return the mean of the values of each row."""
    return np.stack([values[row].mean(axis=0, dtype=np.float64) for row in rows]).astype(np.float32)

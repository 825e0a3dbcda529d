"""A device's samples completed for the labels that it lacks: mixes first, natural noise after.

With n the largest number of real samples of a label, every label with c real samples, fewer than
``fewer_than``, is filled up to ``count`` or ``supplement`` · n: N samples are added, that number
less c, at most Q = ``mix_share`` · N of them mixes. Real samples are never replaced; they come
first. Supplements have no columns, so completed samples have none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgefed.algorithms.bounties.received_mixes import held, of_label
from edgefed.algorithms.interface.device_side import DeviceView
from edgefed.config.recipes.recipe import LabelsSection
from edgefed.data.base.limits import MAX_BYTES, VALUE_BYTES
from edgefed.data.base.pixel_range import from_pixels
from edgefed.errors import DataError
from edgefed.learn.base.types import Array, Samples
from edgefed.seeds import derive, generator
from edgefed.terminal.units import size

BLOCK = 256
"""Real samples to copy at a time."""


@dataclass(frozen=True)
class LabelNeed:
    """A device's missing samples of a label.

    Attributes:
        label: with fewer real samples than ``labels.fewer_than``, by default without any.
        count: N, the samples to add.
        mixes: Q, the most mixes among them.
    """

    label: int
    count: int
    mixes: int


@dataclass(frozen=True)
class _SamplePart:
    """How many mixes and images of noise are added of a label."""

    label: int
    mixes: int
    noise: int


def needs_of(labels: Array, classes: int, settings: LabelsSection) -> tuple[LabelNeed, ...]:
    """Return the missing samples of a device with these labels, by label.

    Args:
        labels: of its real samples, int64 (n,).
        classes: number of labels.
        settings: the recipe's ``[labels]`` table.
    """
    counts = np.bincount(labels, minlength=classes)
    number = settings.count or round(settings.supplement * int(counts.max()))
    rare = np.flatnonzero(counts < min(settings.fewer_than, number))
    return tuple(
        LabelNeed(int(label), wanted, round(settings.mix_share * wanted))
        for label in rare
        for wanted in [number - int(counts[label])]
    )


def completed(
    device: DeviceView, settings: LabelsSection, kept: Mapping[str, Array], seed: int
) -> Samples:
    """Return the device's samples with supplements for every label that it lacks.

    Samples of a device that needs no supplements are returned as they are, others without columns.

    Args:
        device: its real samples, and its source of noise.
        settings: the recipe's ``[labels]`` table.
        kept: mixes that it received.
        seed: of the noise, and of the choice among too many mixes.

    Raises:
        DataError: ``label.too_large``, as ``check_size``; nothing was drawn.
    """
    real = device.train
    parts = [part for part in _parts(device, settings, kept) if part.mixes + part.noise]
    if not parts:
        return real
    extra, shape = sum(part.mixes + part.noise for part in parts), real.inputs.shape[1:]
    check_size(extra, shape)
    inputs = np.empty((len(real) + extra, *shape), real.inputs.dtype)
    targets = np.empty(len(real) + extra, real.targets.dtype)
    # Images may be in a file, and are copied block by block
    for at in range(0, len(real), BLOCK):
        inputs[at : min(at + BLOCK, len(real))] = real.inputs[at : at + BLOCK]
    targets[: len(real)] = real.targets
    start = len(real)
    for part in parts:
        for pixels in _pixels(part, device, settings, kept, seed):
            added = pixels if real.has_images else from_pixels(pixels, device.preparation)
            inputs[start : start + len(pixels)] = added
            targets[start : start + len(pixels)] = part.label
            start += len(pixels)
    return Samples(inputs, targets, scale=real.scale)


def _parts(
    device: DeviceView, settings: LabelsSection, kept: Mapping[str, Array]
) -> Iterator[_SamplePart]:
    """Return the additions for each label that the device lacks."""
    there = held(kept, device.model.classes)
    for need in needs_of(device.train.targets, device.model.classes, settings):
        mixes = min(int(there[need.label]), need.mixes)
        yield _SamplePart(need.label, mixes, 0 if settings.noise == "none" else need.count - mixes)


def _pixels(
    part: _SamplePart,
    device: DeviceView,
    settings: LabelsSection,
    kept: Mapping[str, Array],
    seed: int,
) -> Iterator[Array]:
    """Return the images of a part: mixes, then noise."""
    if part.mixes:
        yield _chosen(of_label(kept, part.label), part.mixes, seed, part.label)
    if part.noise and settings.noise != "none":
        shape = tuple(device.train.inputs.shape[1:])
        yield device.noise(derive(seed, "noise", part.label), part.noise, shape, settings.noise)


def check_size(samples: int, shape: Sequence[int]) -> None:
    """Check that a device's supplements fit into memory, before any of them is drawn.

    Raises:
        DataError: ``label.too_large``: as inputs they take more than a data set may.
    """
    needed = samples * int(np.prod(shape)) * VALUE_BYTES
    if needed > MAX_BYTES:
        raise DataError(
            f"Supplements of {samples:,} samples take {size(needed)} of a device's memory, and may"
            f" take {size(MAX_BYTES)}.",
            code="label.too_large",
            hint="lower labels.count or labels.supplement",
        )


def _chosen(mixes: Array, count: int, seed: int, label: int) -> Array:
    """Return ``count`` of the mixes, in their order; a surplus is dropped at random."""
    if len(mixes) == count:
        return mixes
    kept = generator(seed, "surplus", label).permutation(len(mixes))[:count]
    return np.asarray(mixes[np.sort(kept)])

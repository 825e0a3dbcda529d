"""A device's samples completed for the labels that it lacks: mixes first, natural noise after.

With n the largest number of real samples of a label, N = ``count`` or ``supplement`` · n samples
are added for every label without any, at most Q = ``mix_share`` · N of them mixes. Real samples
are never replaced; they come first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from edgefed.algorithms.base import DeviceView
from edgefed.algorithms.received_mixes import held, of_label
from edgefed.config.recipe import LabelsSection
from edgefed.data.pixels import from_pixels
from edgefed.learn.types import Array, Samples
from edgefed.seeds import derive, generator


@dataclass(frozen=True)
class Need:
    """What a device lacks of a label.

    Attributes:
        label: without any real sample.
        count: N, the samples to add.
        mixes: Q, how many of them may be mixes.
    """

    label: int
    count: int
    mixes: int


def needs_of(labels: Array, classes: int, settings: LabelsSection) -> tuple[Need, ...]:
    """Return what a device with these labels lacks, by label.

    Args:
        labels: of its real samples, int64 (n,).
        classes: how many labels there are.
        settings: the recipe's ``[labels]`` table.
    """
    counts = np.bincount(labels, minlength=classes)
    number = settings.count or round(settings.supplement * int(counts.max()))
    mixes = round(settings.mix_share * number)
    if not number:
        return ()
    return tuple(Need(int(label), number, mixes) for label in np.flatnonzero(counts == 0))


def completed(
    device: DeviceView, settings: LabelsSection, kept: Mapping[str, Array], seed: int
) -> Samples:
    """Return the device's samples with supplements for every label that it lacks.

    Args:
        device: its real samples, and who draws noise.
        settings: the recipe's ``[labels]`` table.
        kept: mixes that it received.
        seed: of the noise, and of which mixes are left out where there are too many.
    """
    real = device.train
    inputs, targets = [real.inputs], [real.targets]
    there = held(kept, device.model.classes)
    for need in needs_of(real.targets, device.model.classes, settings):
        used = min(int(there[need.label]), need.mixes)
        pixels = []
        if used:
            pixels.append(_chosen(of_label(kept, need.label), used, seed, need.label))
        if settings.noise != "none" and used < need.count:
            own, shape = derive(seed, "noise", need.label), tuple(real.inputs.shape[1:])
            pixels.append(device.noise(own, need.count - used, shape, settings.noise))
        for each in pixels:
            inputs.append(from_pixels(each, device.preparation))
            targets.append(np.full(len(each), need.label, real.targets.dtype))
    return Samples(np.concatenate(inputs), np.concatenate(targets))


def _chosen(mixes: Array, count: int, seed: int, label: int) -> Array:
    """Return ``count`` of the mixes, in their order; a surplus is dropped at random."""
    if len(mixes) == count:
        return mixes
    kept = generator(seed, "surplus", label).permutation(len(mixes))[:count]
    return np.asarray(mixes[np.sort(kept)])

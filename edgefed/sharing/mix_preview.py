"""Mixes beside their samples, for their owner; they never leave a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgefed.files.samples import Samples, scaled_images
from edgefed.sharing.label_mixes import (
    Ingredients,
    MixSettings,
    draw_ingredients,
    mixes_of,
    quantised,
    require_labels,
)
from edgefed.sharing.types import Array, Indices


@dataclass(frozen=True, eq=False)
class MixPreview:
    """Mixes of a label, each with several scales of noise.

    Attributes:
        samples: the device's, as 8-bit pixels.
        made: samples and weights of each mix, by numbers among ``samples``.
        mixes: uint8 (mixes, …) as they would be released, by the scale of their noise.
    """

    samples: Samples
    made: Ingredients
    mixes: Mapping[float, Array]

    def sources(self, mix: int) -> list[tuple[int, float]]:
        """Return the samples of a mix and their weights: the dominant one, then by weight."""
        target = (int(self.made.targets[mix]), float(self.made.weights[mix, 0]))
        weights = self.made.weights[mix, 1:]
        order = np.argsort(-weights, kind="stable")
        others: Indices = self.made.others[mix]
        return [target, *((int(others[place]), float(weights[place])) for place in order)]


def preview_mixes(
    samples: Samples,
    label: int,
    count: int,
    settings: MixSettings,
    scales: Sequence[float],
    generator: np.random.Generator,
) -> MixPreview:
    """Return mixes of a label: the same samples and weights at each scale, with new noise.

    Args:
        samples: the device's: pixels from 0 to 1, and labels.
        label: of the mixes.
        count: how many.
        settings: how mixes are made; their samples come from the device.
        scales: of the noise.
        generator: seeded by the operating system.

    Raises:
        MixDeclined: the device has too few samples.
        DataError: ``data.targets``: there are no labels.
    """
    require_labels(samples)
    made = draw_ingredients(samples.targets, label, count, settings, generator)
    inputs = samples.inputs
    mixes = {
        scale: quantised(
            mixes_of(made, inputs, inputs, replace(settings, noise_scale=scale), generator)
        )
        for scale in scales
    }
    images = scaled_images(inputs)
    shown = quantised(inputs) if images is None else images.images
    return MixPreview(replace(samples, inputs=shown), made, mixes)

"""Convert a share of each label's images to grey: more on some devices than on others.

The data bias experiment of FedMA (Wang et al., ICLR 2020, figure 4): five random labels, 95 % grey,
on one device; the other five, 5 % grey, on another; half of the test images are grey. With
``partition = "classes"``, two devices of five labels each.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgefed.data.transforms.images import require_images
from edgefed.data.types import Array, Preparation
from edgefed.samples import Samples

LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue (ITU-R BT.601), as Pillow and torchvision use them."""


def greyed(
    samples: Samples, preparation: Preparation, share: float, rng: np.random.Generator
) -> Samples:
    """Return the samples, round(share · n) of each label's n images grey.

    Args:
        samples: RGB images (n, 3, height, width).
        preparation: what was done to them; they are grey in the same terms.
        share: in [0, 1].
        rng: draws which images.

    Raises:
        DataError: the inputs are no images of three channels.
    """
    require_images(samples.inputs, "greyscale", channels=3)
    chosen = [
        rng.permutation(same)[: round(share * len(same))]
        for same in (np.flatnonzero(samples.targets == each) for each in np.unique(samples.targets))
    ]
    inputs = samples.inputs.copy()
    if chosen:
        which = np.concatenate(chosen)
        inputs[which] = _grey(inputs[which], preparation)
    return replace(samples, inputs=inputs)


def _grey(images: Array, preparation: Preparation) -> Array:
    mean, std = (value[:, None, None] for value in preparation.scale(3))
    brightness = np.tensordot(images * std + mean, np.array(LUMA, np.float32), axes=(1, 0))
    grey: Array = (brightness[:, None] - mean) / std
    return grey

"""Convert a share of each label's images to grey: more on some devices than on others.

The data bias experiment of FedMA (Wang et al., ICLR 2020, figure 4): five random labels, 95 % grey,
on one device; the other five, 5 % grey, on another; half of the test images are grey. With
``partition = "classes"``, two devices of five labels each; ``parts_per_device = 2`` and one device
are training on the pooled data.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgefed.data.base.types import Array, Indices, Preparation, take
from edgefed.data.transforms.images import require_images
from edgefed.files.samples import Samples

LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue (ITU-R BT.601), as Pillow and torchvision use them."""


def greyed(
    samples: Samples,
    preparation: Preparation,
    share: float,
    rng: np.random.Generator,
    *,
    oversample: bool = False,
) -> Samples:
    """Return the samples, round(share · n) of each label's n images grey.

    Args:
        samples: RGB images (n, 3, height, width).
        preparation: of the samples; grey values are prepared in the same way.
        share: in [0, 1].
        rng: draws the images.
        oversample: append copies of the rarer kind of a label's images (grey or colour), drawn with
            replacement, until both are equally many.

    Raises:
        DataError: the inputs are not images of three channels.
    """
    require_images(samples.inputs, "greyscale", channels=3)
    samples = replace(samples, inputs=samples.float_inputs())
    orders = [
        rng.permutation(np.flatnonzero(samples.targets == label))
        for label in np.unique(samples.targets)
    ]
    split = [np.split(order, [round(share * len(order))]) for order in orders]
    inputs = samples.inputs.copy()
    if split:
        which = np.concatenate([grey for grey, _ in split])
        inputs[which] = _grey(inputs[which], preparation)
    result = replace(samples, inputs=inputs)
    if not oversample:
        return result
    more = [_copies(grey, colour, rng) for grey, colour in split]
    return take(result, np.concatenate([np.arange(len(result)), *more]))


def _copies(grey: Indices, colour: Indices, rng: np.random.Generator) -> Indices:
    """Return draws from the smaller of two sets that make them equal; none from an empty one."""
    fewer, others = sorted((grey, colour), key=len)
    missing = len(others) - len(fewer) if len(fewer) else 0
    drawn: Indices = fewer[rng.integers(len(fewer), size=missing)] if missing else fewer[:0]
    return drawn


def _grey(images: Array, preparation: Preparation) -> Array:
    mean, std = (value[:, None, None] for value in preparation.scale(3))
    brightness = np.tensordot(images * std + mean, np.array(LUMA, np.float32), axes=(1, 0))
    grey: Array = (brightness[:, None] - mean) / std
    return grey

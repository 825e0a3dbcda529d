"""Scale or shift the inputs of each device in its own way: skew in features, with the same labels.

z is drawn from the standard normal distribution for each device, s is ``feature_strength``, and σ
the standard deviation of the prepared training inputs: of each channel of images, and of each
number of other inputs. An input x becomes

- exp(s · z) · x with ``scaling``: the factor is log-normal, its median 1;
- x + s · σ · z with ``offset``, z for each channel or number;
- x + t · s · σ · z with ``drift``, where t rises evenly from 0 at the device's first sample to 1 at
  its last.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from edgefed.data.base.preparation import BLOCK
from edgefed.data.base.types import Array
from edgefed.errors import DataError
from edgefed.files.samples import Samples

Floats = npt.NDArray[np.float64]

FEATURES = ("scaling", "offset", "drift")
"""The transforms of this module."""

OFFSETS = ("offset", "drift")
"""Those that measure the inputs' standard deviation."""


def skewed(
    samples: Samples,
    transform: str,
    strength: float,
    spread: Floats,
    rng: np.random.Generator,
    *,
    mixed: bool = False,
) -> Samples:
    """Return a device's samples with its own scale or offset; of mixed devices, with one for each.

    Args:
        samples: floats, or images; not tokens.
        transform: one of `FEATURES`.
        strength: s.
        spread: σ, as `input_spread` gives it.
        rng: draws z.
        mixed: whether each sample is as of another device, and at a random place of its drift.

    Raises:
        DataError: the inputs are tokens.
    """
    inputs = _floats(samples, transform)
    devices = len(samples) if mixed else 1
    alone = (1,) * (inputs.ndim - 1)
    if transform == "scaling":
        changed = inputs * np.exp(strength * rng.normal(size=(devices, *alone))).astype(np.float32)
        return replace(samples, inputs=changed)
    offsets = strength * spread * rng.normal(size=(devices, *spread.shape))
    if transform == "drift":
        places = rng.random(len(samples)) if mixed else np.linspace(0, 1, len(samples))
        offsets = offsets * places.reshape(-1, *alone)
    return replace(samples, inputs=inputs + offsets.astype(np.float32))


def input_spread(samples: Samples) -> Floats:
    """Return the standard deviation of each channel (channels, 1, 1), or of each number of others.

    Inputs are read a block at a time.
    """
    inputs = samples.model_inputs
    axes = (0, 2, 3) if inputs.ndim == 4 else (0,)

    def mean(center: Array | float, power: int) -> Floats:
        total: Array = np.zeros(())
        for start in range(0, len(inputs), BLOCK):
            block = inputs[start : start + BLOCK].astype(np.float64)
            total = total + ((block - center) ** power).sum(axis=axes, keepdims=True)[0]
        values: Floats = total / max(1, inputs.size // max(1, total.size))
        return values

    return np.sqrt(mean(mean(0.0, 1), 2))


def _floats(samples: Samples, transform: str) -> Array:
    if samples.inputs.dtype.kind in "fu":
        return samples.float_inputs()
    raise DataError(
        f"The transform '{transform}' needs numbers, but the inputs are tokens of a text.",
        code="data.transform",
        hint='set transform = "none", or name another data set',
    )

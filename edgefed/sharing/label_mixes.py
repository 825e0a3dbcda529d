"""Private mixes of a label: algorithm 1 of DP-LabelHide.

Sang, Rabbani, Huang: Balancing Label Imbalance in Federated Environments Using Only Mixup and
Artificially-Labeled Noise, ICPRAI 2024. A mix of label y is

    z = Σ_i w_i x_i + η,   x_1 of label y,   w_1 ~ U[low, high],   η ~ Laplace(0, σ) for each pixel

where x_2 … x_k are other samples, drawn without replacement, whose weights are 1 - w_1 divided by a
uniform Dirichlet draw. Only z and y leave the device. Pixels are from 0 to 1, not standardised.

Privacy requires that the choice of samples, the weights and the noise are drawn from the operating
system's randomness; ``mix_accounting`` states the guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from edgefed.errors import DataError, UsageError
from edgefed.files.samples import Samples, scaled_images
from edgefed.sharing.types import Array, Indices

Others = Literal["other_classes", "any", "global"]
"""Where x_2 … x_k come from: samples of other labels, all other samples of the device, or samples
that the caller brings, which only a simulation has."""

LEAST_DOMINANT = 0.5
"""Least weight of the sample whose label a mix has; with less, another could weigh more."""

MOST_SAMPLES = 64


@dataclass(frozen=True)
class MixSettings:
    """Settings of mixes.

    Attributes:
        width: k, the samples in a mix, at least 1; with 1 a mix is a sample with noise.
        low, high: the range of w_1, between 0.5 and 1; unused with a width of 1.
        others: source of x_2 … x_k.
        noise_scale: σ, in units of pixels from 0 to 1.
        clip: whether values outside of 0 to 1 are clipped after the noise, which costs no privacy.
    """

    width: int = 4
    low: float = 0.5
    high: float = 0.75
    others: Others = "any"
    noise_scale: float = 16 / 255
    clip: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.width <= MOST_SAMPLES:
            raise _refused(f"of {self.width} samples", f"choose a width from 1 to {MOST_SAMPLES}")
        if not LEAST_DOMINANT <= self.low <= self.high <= 1:
            raise _refused(
                f"with weights from {self.low} to {self.high}",
                f"choose a range between {LEAST_DOMINANT} and 1, the lower end first",
            )
        if self.others not in get_args(Others):
            raise _refused(f"with {self.others!r}", f"choose from {', '.join(get_args(Others))}")
        if not 0 <= self.noise_scale < float("inf"):
            raise _refused(f"with noise of scale {self.noise_scale}", "choose 0 or more")


@dataclass(frozen=True, eq=False)
class Ingredients:
    """The samples and weights of mixes; they never leave a device.

    Attributes:
        targets: numbers of the samples x_1 (mixes,).
        others: numbers of x_2 … x_k (mixes, k - 1), among the device's samples or the pool.
        weights: w_1 … w_k (mixes, k).
    """

    targets: Indices
    others: Indices
    weights: Array


class MixDeclined(DataError):  # noqa: N818 - the device is in its right
    """The device has too little to mix."""

    default_code = "mix.declined"


def reason_to_decline(labels: Indices, label: int, settings: MixSettings, pool: int = 0) -> str:
    """Return why a device cannot mix a label, or nothing.

    Args:
        labels: of the device's samples.
        label: the requested one.
        settings: of the mixes.
        pool: number of samples that the caller provides, where ``others`` is ``global``.
    """
    own = int(np.count_nonzero(labels == label))
    if not own:
        return f"it has no sample of label {label}"
    rest = {"other_classes": len(labels) - own, "any": len(labels) - 1, "global": pool}
    if (others := rest[settings.others]) < settings.width - 1:
        return f"it has {others} other samples, and a mix needs {settings.width - 1}"
    return ""


def draw_ingredients(
    labels: Indices,
    label: int,
    count: int,
    settings: MixSettings,
    generator: np.random.Generator,
    pool: int = 0,
) -> Ingredients:
    """Draw the samples and weights of ``count`` mixes of a label.

    Args:
        labels: of the device's samples.
        label: of the mixes.
        count: number of mixes; more than there are samples of the label reuse them, with other
            partners.
        settings: of the mixes.
        generator: seeded by the operating system, where the mixes are to be private.
        pool: number of samples that the caller provides, where ``others`` is ``global``.

    Raises:
        MixDeclined: there are too few samples.
    """
    if reason := reason_to_decline(labels, label, settings, pool):
        raise MixDeclined(f"This device cannot mix label {label}: {reason}.")
    own, different = np.flatnonzero(labels == label), np.flatnonzero(labels != label)
    targets = own[generator.integers(len(own), size=count)]
    others = np.empty((count, settings.width - 1), np.int64)
    for place, target in enumerate(targets):
        if settings.others == "other_classes":
            others[place] = different[_chosen(generator, len(different), settings)]
        elif settings.others == "any":
            drawn = _chosen(generator, len(labels) - 1, settings)
            others[place] = drawn + (drawn >= target)
        else:
            others[place] = _chosen(generator, pool, settings)
    return Ingredients(targets, others, _draw_weights(count, settings, generator))


def mix_label(
    samples: Samples,
    label: int,
    count: int,
    settings: MixSettings,
    generator: np.random.Generator,
    pool: Array | None = None,
) -> Array:
    """Return ``count`` mixes of a label, noise included: float32 (count, …).

    Args:
        samples: the device's: pixels from 0 to 1, or uint8, and labels.
        label: of the mixes.
        count: how many.
        settings: of the mixes.
        generator: seeded by the operating system, where the mixes are to be private.
        pool: inputs of other devices, where ``others`` is ``global``.

    Raises:
        MixDeclined: the device has too few samples.
        DataError: ``mix.pixels``: the inputs are no pixels; ``data.targets``: there are no labels.
    """
    require_labels(samples)
    inputs = samples.inputs
    partners = inputs
    if settings.others == "global":
        partners = inputs[:0] if pool is None else pool
    for pixels in (inputs, partners):
        _check_pixels(pixels)
    made = draw_ingredients(samples.targets, label, count, settings, generator, len(partners))
    return mixes_of(made, inputs, partners, settings, generator)


def mixes_of(
    made: Ingredients,
    inputs: Array,
    partners: Array,
    settings: MixSettings,
    generator: np.random.Generator,
) -> Array:
    """Return the mixes of drawn ingredients, noise included: float32 (mixes, …).

    Args:
        made: samples and weights of each mix.
        inputs: the device's: pixels from 0 to 1, or uint8.
        partners: the array of x_2 … x_k: the inputs, or those of other devices.
        settings: the noise, and whether it is clipped.
        generator: of the noise.
    """
    mixes = np.empty((len(made.targets), *inputs.shape[1:]), np.float32)
    for place in range(len(mixes)):
        first = _pixels(inputs[made.targets[place]])[None]
        whole = np.concatenate([first, _pixels(partners[made.others[place]])])
        mix = np.tensordot(made.weights[place], whole, axes=1)
        if settings.noise_scale:
            mix = mix + generator.laplace(scale=settings.noise_scale, size=mix.shape)
        mixes[place] = np.clip(mix, 0, 1) if settings.clip else mix
    return mixes


def require_labels(samples: Samples) -> None:
    """Check that samples have labels.

    Raises:
        DataError: ``data.targets``: their targets are numbers.
    """
    if not samples.has_labels:
        raise DataError(
            "Only samples with labels can be mixed for a label.",
            code="data.targets",
            hint="leave this device out of label bounties",
        )


def quantised(mixes: Array) -> Array:
    """Return mixes as uint8, clipped to 0 to 1 and rounded; of the released values only."""
    return np.asarray(np.rint(np.clip(mixes, 0, 1) * 255)).astype(np.uint8)


def _chosen(generator: np.random.Generator, count: int, settings: MixSettings) -> Indices:
    """Return k - 1 of ``count`` numbers, each at most once, in random order."""
    return generator.choice(count, settings.width - 1, replace=False)


def _draw_weights(count: int, settings: MixSettings, generator: np.random.Generator) -> Array:
    """Return weights (count, k) that sum to 1, the dominant one first."""
    if settings.width == 1:
        return np.ones((count, 1))
    first = generator.uniform(settings.low, settings.high, (count, 1))
    shares = generator.dirichlet(np.ones(settings.width - 1), count)
    return np.concatenate([first, (1 - first) * shares], axis=1)


def _pixels(values: Array) -> Array:
    """Return pixels from 0 to 1, float64."""
    return values / 255 if values.dtype == np.uint8 else values.astype(np.float64)


def _check_pixels(inputs: Array) -> None:
    """Check that inputs are uint8, or floats from 0 to 1: the sensitivity rests on that range."""
    if inputs.dtype == np.uint8 or scaled_images(inputs) is not None or not inputs.size:
        return
    if inputs.dtype.kind != "f" or not (inputs.min() >= 0 and inputs.max() <= 1):
        raise DataError(
            "Only pixels from 0 to 1 can be mixed for a label.",
            code="mix.pixels",
            hint="mix images before they are standardised",
        )


def _refused(what: str, hint: str) -> UsageError:
    return UsageError(f"Labels cannot be mixed {what}.", code="mix.settings", hint=hint)

"""Compute averaged data of a device's samples.

Yoon, Shin, Hwang, Yang: FedMix: Approximation of Mixup under Mean Augmented Federated Learning,
ICLR 2021, section 3.2. A device splits its samples into groups J of M and sends, for each,

    x̄ = 1/M Σ_{j in J} x_j        ȳ = 1/M Σ_{j in J} y_j

The seed of groups and noise is derived from the data. The same data therefore give the same
averages in every run, on a board and in the simulator, and more runs reveal no more than one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgefed.errors import DataError
from edgefed.files.samples import Samples, scaled_images, stored
from edgefed.sharing.groups import class_groups, random_groups
from edgefed.sharing.policy import Policy, Withheld
from edgefed.sharing.types import Array, Entries, Indices

BLOCK = 256
"""Samples to hash at a time."""


@dataclass(frozen=True)
class Averaging:
    """A coordinator's request for averages.

    Attributes:
        group_size: M; 0 for all samples of the device in one group. A policy may make it larger.
        noise: standard deviation of Gaussian noise on the mean inputs, in their own units. It gives
            no differential privacy.
        same_class: average within labels only.
        raw: samples as they are, not averages; only with groups of one.
    """

    group_size: int = 0
    noise: float = 0.0
    same_class: bool = False
    raw: bool = False


def average(
    samples: Samples,
    classes: int,
    vocabulary: int | None,
    asked: Averaging,
    policy: Policy,
    *,
    hidden: Array | None = None,
) -> tuple[Entries, list[int]]:
    """Return a device's averaged data, and the number of samples in each entry.

    Args:
        samples: the device's; labels are below ``classes``.
        classes: width of a one-hot label.
        vocabulary: number of tokens, for inputs that are tokens; None for numbers.
        asked: the coordinator's request.
        policy: the device's.
        hidden: (n, …), averaged in place of the inputs; the groups are those of the inputs.

    Raises:
        Withheld: the policy forbids it, or the device has too few samples.
        DataError: samples cannot be averaged.
    """
    _check(samples, classes, vocabulary, asked, policy)
    size = max(asked.group_size, policy.least_group) if asked.group_size else 0
    rng = own_generator(samples, "averages", size, asked.same_class)
    if asked.same_class:
        groups = class_groups(samples, size, rng)
    else:
        groups = random_groups(len(samples), size, rng)
    whole = samples.model_inputs if hidden is None else hidden
    if asked.raw and vocabulary is not None:
        inputs = np.stack([whole[group[0]] for group in groups]).astype(np.int64)
    else:
        inputs = np.stack([_mean_input(whole, group, vocabulary) for group in groups])
    if asked.noise:
        # Were the noise the same at every strength, two strengths would cancel it.
        purpose = ("noise", size, asked.same_class, repr(asked.noise))
        noise = own_generator(samples, *purpose).normal(size=inputs.shape)
        inputs = (inputs + asked.noise * noise).astype(np.float32)
    return Entries(inputs, _mean_targets(samples.targets, groups, classes)), [
        len(group) for group in groups
    ]


def own_generator(samples: Samples, *purpose: str | int) -> np.random.Generator:
    """Return a generator for one purpose, which cannot be repeated without the samples."""
    sha = hashlib.sha256(repr(purpose).encode())
    for array in (samples.model_inputs, samples.targets):
        for start in range(0, len(array), BLOCK):
            block = np.asarray(array[start : start + BLOCK], order="C")
            sha.update(block.reshape(-1).view(np.uint8).data)
    return np.random.default_rng(int.from_bytes(sha.digest(), "big"))


def own_word(samples: Samples, device: str) -> str:
    """Return a word that changes when a device's samples do, and discloses nothing about them."""
    images = stored(samples.inputs)
    if images is not None:
        # Instead of all images, which take minutes to read on a board, their digests.
        known = images.digests.tolist()
        samples = Samples(np.zeros((0, 1), np.float32), samples.targets)
        return own_generator(samples, "word", device, repr(known)).bytes(8).hex()
    return own_generator(samples, "word", device).bytes(8).hex()


def check_hidden(policy: Policy) -> None:
    """Check that averages of hidden states may leave a device.

    Raises:
        Withheld: they may not.
    """
    if not policy.share_hidden:
        raise Withheld(
            "it does not share averages of hidden states (share_hidden = false)",
            hint="set share_hidden = true in the device's settings, or split = 0 in the recipe",
        )


def _check(
    samples: Samples, classes: int, vocabulary: int | None, asked: Averaging, policy: Policy
) -> None:
    """Refuse samples that cannot, or may not, be averaged."""
    if not policy.share_means:
        raise Withheld("it does not share averaged data (share_means = false)")
    if len(samples) < max(1, policy.least_group):
        several = "" if len(samples) == 1 else "s"
        raise Withheld(
            f"it has {len(samples)} sample{several}, and its policy requires {policy.least_group} "
            "for an average",
            hint="lower least_group in the device's settings",
        )
    if asked.raw and (asked.group_size != 1 or policy.least_group > 1):
        raise Withheld(
            "it does not share raw samples",
            hint="mix raw samples in a simulation, or average them: choose fedmix",
        )
    if asked.same_class and policy.least_group > 1:
        # Labels too small for a group would be what the mean of all has beside those of the others.
        raise Withheld(
            "it does not share averages of single labels",
            hint="set same_class = false, or run it as a simulation",
        )
    whole = samples.targets.ndim == 1
    if whole and not 0 <= int(samples.targets.min()) <= int(samples.targets.max()) < classes:
        raise DataError(
            f"Labels range from {samples.targets.min()} to {samples.targets.max()}, but the run "
            f"knows 0 to {classes - 1}.",
            code="data.labels",
        )
    if asked.same_class and not whole:
        raise DataError("Only labels can be averaged by class.", code="data.targets")
    if vocabulary is None and samples.inputs.dtype.kind == "i":
        raise DataError(
            "Inputs that are not numbers cannot be averaged.",
            code="data.discrete",
            hint="average them after an embedding: set algorithm.split",
        )


def _mean_input(whole: Array, group: Indices, vocabulary: int | None) -> Array:
    """Return the mean of a group's inputs, or of the one-hot vectors of its tokens (m, length)."""
    if scaled_images(whole) is not None:
        return _mean_image(whole, group)
    inputs = whole[group]
    if vocabulary is None:
        mean: Array = inputs.mean(axis=0, dtype=np.float64).astype(np.float32)
        return mean
    count, length = inputs.shape
    sums = np.zeros((length, vocabulary))
    np.add.at(sums, (np.tile(np.arange(length), count), inputs.reshape(-1).astype(np.int64)), 1)
    return (sums / count).astype(np.float32)


def _mean_image(images: Array, group: Indices) -> Array:
    """Return the mean of images that are scaled where they are indexed, one after another."""
    total = np.zeros(images.shape[1:])
    for number in group:
        total += images[int(number)]
    return (total / len(group)).astype(np.float32)


def _mean_targets(targets: Array, groups: Sequence[Indices], classes: int) -> Array:
    """Return the mean one-hot labels, or the mean targets, of each group."""
    if targets.ndim > 1:
        rows = [targets[group].mean(axis=0, dtype=np.float64) for group in groups]
    else:
        rows = [np.bincount(targets[group], minlength=classes) / len(group) for group in groups]
    return np.stack(rows).astype(np.float32)

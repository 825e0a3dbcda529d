"""Apply a recipe's transform to each device's samples and to the test samples.

The permutation of labels is the clustering experiment of Federated Mixture of Experts (Reisser et
al., 2021, appendix B): four permutations, assigned to the devices at random.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgefed.data.base.types import Dataset, Indices
from edgefed.data.transforms.features import FEATURES, OFFSETS, Floats, input_spread, skewed
from edgefed.data.transforms.greyscale import greyed
from edgefed.data.transforms.options import TransformOptions
from edgefed.data.transforms.rotation import rotated_mix
from edgefed.errors import DataError
from edgefed.files.samples import Samples
from edgefed.seeds import generator

BY_LABEL = ("greyscale", "permutation")
"""The transforms that look at labels."""


def transform_device(
    samples: Samples,
    dataset: Dataset,
    options: TransformOptions,
    device: int,
    seed: int,
    spread: Floats,
) -> Samples:
    """Return a virtual device's samples, transformed.

    Args:
        samples: the device's part of ``dataset``.
        dataset: has the number of labels and the preparation of the inputs.
        options: of the transform.
        device: the device's number, from 0.
        seed: the run's; every draw derives from it and the device's number.
        spread: as `spread_of` gives it.

    Raises:
        DataError: the inputs do not suit the transform.
    """
    if options.transform == "none":
        return samples
    rng = generator(seed, "partition", "transform", device)
    if options.transform == "rotation":
        angles, alpha = options.angles, options.rotation_alpha
        return rotated_mix(samples, dataset.preparation, rng, angles=angles, alpha=alpha)
    if options.transform == "greyscale":
        share = options.grey_shares[device % len(options.grey_shares)]
        preparation, oversample = dataset.preparation, options.grey_oversample
        return greyed(samples, preparation, share, rng, oversample=oversample)
    if options.transform == "permutation":
        drawn = generator(seed, "partition", "orders")
        orders = label_orders(dataset.classes, options.permutations, drawn)
        return relabelled(samples, orders[order_number(options, device, seed)])
    if options.transform in FEATURES:
        return skewed(samples, options.transform, options.feature_strength, spread, rng)
    return samples


def spread_of(dataset: Dataset, options: TransformOptions) -> Floats:
    """Return the unit of offsets, `input_spread`; for other transforms, an empty array."""
    return input_spread(dataset.train) if options.transform in OFFSETS else np.zeros(0)


def order_number(options: TransformOptions, device: int, seed: int) -> int:
    """Return the number of a virtual device's order of labels."""
    return int(generator(seed, "partition", "transform", device).integers(options.permutations))


def transform_test(dataset: Dataset, options: TransformOptions) -> Dataset:
    """Return the data set with the coordinator's test samples transformed as the devices' are.

    They are the same in every run. Labels are not permuted, because devices have different orders;
    a warning says so.

    Raises:
        DataError: the inputs or targets do not suit the transform.
    """
    _check_labels(dataset, options)
    rng = generator(0, "data", "test", "transform")
    test, preparation = dataset.test, dataset.preparation
    if options.transform == "rotation":
        turned = rotated_mix(test, preparation, rng, angles=options.angles, alpha=None)
        return replace(dataset, test=turned)
    if options.transform == "greyscale":
        return replace(dataset, test=greyed(test, preparation, options.grey_test_share, rng))
    if options.transform in FEATURES:
        spread, strength = spread_of(dataset, options), options.feature_strength
        return replace(
            dataset, test=skewed(test, options.transform, strength, spread, rng, mixed=True)
        )
    if options.transform == "permutation":
        note = (
            "the coordinator's test labels are not permuted; test on the devices:"
            ' set evaluation.on = "devices" and simulation.holdout'
        )
        return replace(dataset, warnings=(*dataset.warnings, note))
    return dataset


def _check_labels(dataset: Dataset, options: TransformOptions) -> None:
    """Refuse a transform that goes by labels where there are none."""
    if options.transform not in BY_LABEL or dataset.train.has_labels:
        return
    raise DataError(
        f"The transform '{options.transform}' needs labels, but the targets are numbers.",
        code="data.transform",
        hint='set transform = "none", or "rotation" for images',
    )


def label_orders(classes: int, orders: int, rng: np.random.Generator) -> Indices:
    """Return (orders, classes): in row k, label c becomes the entry at place c."""
    return np.array([rng.permutation(classes) for _ in range(orders)], np.int64)


def relabelled(samples: Samples, order: Indices) -> Samples:
    """Return the samples with each label c replaced by ``order[c]``; ``order`` is (classes,)."""
    return replace(samples, targets=order[samples.targets])

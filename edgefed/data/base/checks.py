"""Convert arrays from outside to samples: check layout, scale and values."""

from __future__ import annotations

import numpy as np

from edgefed.data.base.types import Array
from edgefed.errors import DataError
from edgefed.files.mapped import release
from edgefed.files.samples import Samples
from edgefed.wire import limits

CHANNELS = (1, 3, 4)
"""How many values a pixel may have: grey, RGB, RGBA."""

BLOCK = 4096
"""Samples that are checked at a time; a check of all would take a quarter of their memory."""


def checked_samples(inputs: Array, labels: Array, where: str) -> Samples:
    """Return float32 inputs and int64 labels, checked; zero samples are allowed.

    Args:
        inputs: (n, …) numbers. uint8 is read as image bytes: scaled to [0, 1], pixels
            (n, height, width) get a channel axis, (n, height, width, channels) become
            channels first. Anything else keeps its layout and its scale.
        labels: (n,) or (n, 1) integers from 0.
        where: names the file in the errors.

    Raises:
        DataError: the arrays cannot be trained on.
    """
    targets = _labels(labels, where)
    values = _inputs(inputs, where)
    if len(values) != len(targets):
        raise DataError(
            f"{where} has {len(values)} inputs but {len(targets)} labels.",
            hint="write one label for each input, in the same order",
        )
    return Samples(values, targets)


def checked_numbers(inputs: Array, targets: Array, where: str) -> Samples:
    """Return float32 inputs and float32 targets (n, outputs), checked; zero samples are allowed.

    Args:
        inputs: (n, …) numbers, as `checked_samples` takes them.
        targets: (n,) or (n, outputs) floats; they keep their scale.
        where: names the file in the errors.

    Raises:
        DataError: the arrays cannot be trained on.
    """
    numbers, values = _numbers(targets, where), _inputs(inputs, where)
    if len(values) != len(numbers):
        raise DataError(
            f"{where} has {len(values)} inputs but {len(numbers)} targets.",
            hint="write one target for each input, in the same order",
        )
    return Samples(values, numbers)


def checked_tokens(inputs: Array, labels: Array, vocabulary: int, where: str) -> Samples:
    """Return int64 tokens and int64 labels, checked; zero samples are allowed.

    Args:
        inputs: (n, length) integers in [0, vocabulary).
        labels: (n,) or (n, 1) integers from 0.
        vocabulary: how many different tokens there are.
        where: names the file in the errors.

    Raises:
        DataError: the arrays cannot be trained on.
    """
    targets = _labels(labels, where)
    if inputs.ndim != 2 or inputs.dtype.kind not in "iu" or len(inputs) != len(targets):
        raise DataError(
            f"{where} has tokens of type {inputs.dtype} and shape {inputs.shape}"
            f" for {len(targets)} labels.",
            hint="store tokens as an integer array of shape (samples, length)",
        )
    if inputs.size and not 0 <= int(inputs.min()) <= int(inputs.max()) < vocabulary:
        raise DataError(
            f"{where} has tokens outside 0 to {vocabulary - 1}.",
            hint="number the tokens from 0, and state the number of tokens",
        )
    return Samples(inputs.astype(np.int64), targets)


def require_samples(samples: Samples, where: str) -> None:
    """Raise a `DataError` when there is nothing to train on."""
    if len(samples) == 0:
        raise DataError(
            f"{where} holds no samples.",
            code="data.empty",
            hint="collect samples first, or name another file",
        )


def count_classes(where: str, *parts: Samples) -> int:
    """Return the highest label of all ``parts`` plus one; of numbers, how many a target has."""
    counts = (_count(part) for part in parts if len(part))
    highest = max(counts, default=0)
    check_class_count(highest, where)
    return highest


def check_class_count(classes: int, where: str) -> None:
    """Raise a `DataError` for more classes than a device can announce."""
    if classes > limits.MAX_ITEMS:
        raise DataError(
            f"{where} needs {classes} classes; at most {limits.MAX_ITEMS} are supported.",
            hint="number the labels from 0 without gaps",
        )


def same_shape(train: Samples, test: Samples, where: str) -> None:
    """Raise a `DataError` when training and test inputs differ in shape."""
    first, second = train.inputs.shape[1:], test.inputs.shape[1:]
    if first != second:
        raise DataError(
            f"{where} has training inputs of shape {first} but test inputs of shape {second}.",
            hint="prepare both parts in the same way",
        )


def same_targets(train: Samples, test: Samples, where: str) -> None:
    """Raise a `DataError` when only one part has labels, or their targets differ in length."""
    first, second = train.targets, test.targets
    if (first.dtype.kind, first.shape[1:]) != (second.dtype.kind, second.shape[1:]):
        raise DataError(
            f"{where} has training targets of type {first.dtype} and shape {first.shape}"
            f" but test targets of type {second.dtype} and shape {second.shape}.",
            hint="store labels as integers in both parts, or numbers as floats in both",
        )


def _count(part: Samples) -> int:
    return int(part.targets.max()) + 1 if part.has_labels else int(part.targets.shape[1])


def _numbers(targets: Array, where: str) -> Array:
    if targets.ndim == 1:
        targets = targets[:, None]
    if targets.ndim != 2 or targets.shape[1] == 0:
        raise DataError(
            f"{where} has targets of shape {targets.shape}, not (samples,) or (samples, outputs).",
            hint="store one row of numbers for each sample",
        )
    return _finite(targets, "a target", where)


def _labels(labels: Array, where: str) -> Array:
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise DataError(
            f"{where} has labels of type {labels.dtype} and shape {labels.shape},"
            " not one integer for each sample.",
            hint="store labels as an integer array of shape (samples,)",
        )
    if len(labels) and (int(labels.min()) < 0 or int(labels.max()) >= 2**62):
        raise DataError(
            f"{where} has labels outside 0 to classes - 1, such as {_odd_label(labels)}.",
            hint="number the labels from 0; remove samples without a label",
        )
    return labels.astype(np.int64)


def _odd_label(labels: Array) -> int:
    lowest = int(labels.min())
    return lowest if lowest < 0 else int(labels.max())


def _inputs(inputs: Array, where: str) -> Array:
    if inputs.dtype.kind not in "biuf":
        raise DataError(
            f"{where} has inputs of type {inputs.dtype}, not numbers.",
            hint="store inputs as uint8 images or as float32",
        )
    if not 2 <= inputs.ndim <= limits.MAX_DIMENSIONS or 0 in inputs.shape[1:]:
        raise DataError(
            f"{where} has inputs of shape {inputs.shape}, not (samples, …).",
            hint="store one input per row: (samples, features) or (samples, height, width)",
        )
    if inputs.dtype == np.uint8:
        return _image_inputs(inputs)
    return _finite(inputs, "an input", where)


def _finite(array: Array, what: str, where: str) -> Array:
    """Return numbers (n, …) as float32."""
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(array, np.float32)
    if not _all_finite(values):
        bad = int(np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(axis=1))[0])
        raise DataError(
            f"{where} has {what} that is not a finite number, in sample {bad}.",
            hint="remove or repair the samples with NaN or infinite values",
        )
    return values


def _all_finite(values: Array) -> bool:
    for start in range(0, len(values), BLOCK):
        if not np.isfinite(values[start : start + BLOCK]).all():
            return False
        release(values)
    return True


def _image_inputs(pixels: Array) -> Array:
    """Return uint8 pixels scaled to [0, 1], channels first."""
    if pixels.ndim == 3:
        pixels = pixels[:, None]
    elif pixels.ndim == 4 and pixels.shape[-1] in CHANNELS:
        pixels = np.moveaxis(pixels, -1, 1)
    scaled: Array = np.ascontiguousarray(pixels, np.float32)
    scaled /= np.float32(255)
    return scaled

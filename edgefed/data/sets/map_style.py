"""Read a map-style data set, such as a ``torch.utils.data.Dataset``, into two arrays.

Each item is read once. Beside the arrays, one item is in memory at a time; images of bytes stay
bytes.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from edgefed.data.base.types import Array
from edgefed.errors import DataError

MODES = ("L", "RGB", "RGBA")
"""Modes of Pillow's images that are arrays of bytes; others become RGB."""


@runtime_checkable
class MapStyle(Protocol):
    """Pairs of an input and a target by number, from 0."""

    def __len__(self) -> int:
        """Return how many there are."""
        ...

    def __getitem__(self, index: Any, /) -> Any:
        """Return a pair: an image of Pillow's, an array or a tensor; and a label or numbers."""
        ...


def read_map_style(items: MapStyle, where: str) -> tuple[Array, Array]:
    """Return inputs (n, …) and targets (n,) or (n, outputs) of all items.

    Args:
        items: a map-style data set.
        where: names it in the errors.

    Raises:
        DataError: it is empty, an item cannot be read, or items differ in shape.
    """
    count = len(items)
    if not count:
        raise DataError(f"{where} holds no samples.", code="data.empty")
    first_input, first_target = _pair(items, 0, where)
    inputs = np.empty((count, *first_input.shape), _kind(first_input))
    targets = np.empty((count, *first_target.shape), _kind(first_target))
    inputs[0], targets[0] = first_input, first_target
    for number in range(1, count):
        for kept, value in zip((inputs, targets), _pair(items, number, where), strict=True):
            if value.shape != kept.shape[1:] or _kind(value) != kept.dtype:
                raise DataError(
                    f"{where} has a value of type {value.dtype} and shape {value.shape} in sample"
                    f" {number}, and of type {kept.dtype} and shape {kept.shape[1:]} in sample 0.",
                    code="data.shape",
                    hint="give every sample one shape and type, such as with a transform",
                )
            kept[number] = value
    return inputs, targets


def as_array(value: Any, where: str) -> Array:
    """Return an array, tensor, image of Pillow's, list or number as an array.

    Raises:
        DataError: it does not hold numbers.
    """
    if hasattr(value, "detach"):  # a tensor
        value = value.detach().cpu()
    elif hasattr(value, "convert") and getattr(value, "mode", "") not in MODES:
        value = value.convert("RGB")
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise DataError(f"{where} cannot be read as an array: {error}.") from error
    if array.dtype.kind not in "biuf":
        raise DataError(
            f"{where} is of type {array.dtype}, not numbers.",
            hint="give arrays, tensors or images of Pillow's, and labels as integers",
        )
    return array


def _pair(items: MapStyle, number: int, where: str) -> tuple[Array, Array]:
    """Return one item."""
    try:
        item = items[number]
    except Exception as error:  # the data set is somebody else's code
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise DataError(f"{where} cannot read sample {number}: {reason}.") from error
    if not isinstance(item, (tuple, list)) or len(item) != 2:
        raise DataError(
            f"{where} has a {type(item).__name__} for sample {number}, not a pair.",
            hint="return an input and its target, (x, y), for each number",
        )
    value, target = item
    return (
        as_array(value, f"{where}, the input of sample {number},"),
        as_array(target, f"{where}, the target of sample {number},"),
    )


def _kind(array: Array) -> np.dtype[Any]:
    """Return the type that an item is kept in."""
    if array.dtype == np.uint8 and array.ndim:
        return array.dtype
    return np.dtype(np.float32 if array.dtype.kind == "f" else np.int64)

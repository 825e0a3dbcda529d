"""Pack averaged data: inputs as one byte per value on each entry's scale, or unchanged.

    x = offset + scale · code        code in 0 … 255, scale = (max - min) / 255

The error is at most 1/510 of an entry's range, which is narrow because averages are smooth. Each
entry has its own scale, so that one entry with large values does not make the others coarse.
"""

from __future__ import annotations

import numpy as np

from edgefed.errors import DataError
from edgefed.sharing.types import Array, Entries

ROUNDING = 0.01
"""Largest deviation from 1 of a sum of label shares: more than the rounding of ``bf16``."""

Packed = dict[str, Array]
"""``inputs`` and ``targets``; with bytes also ``scale`` and ``offset``, float32 (G,)."""


def pack(entries: Entries, *, as_bytes: bool) -> Packed:
    """Return entries as arrays that travel; raw tokens as they are."""
    if not as_bytes or entries.inputs.dtype.kind == "i":
        return {"inputs": entries.inputs, "targets": entries.targets}
    flat = entries.inputs.reshape(len(entries), -1)
    offset, high = flat.min(axis=1), flat.max(axis=1)
    scale = ((high.astype(np.float64) - offset) / 255).astype(np.float32)
    scale[scale == 0] = 1
    codes = np.rint((flat - offset[:, None]) / scale[:, None]).clip(0, 255).astype(np.uint8)
    return {
        "inputs": codes.reshape(entries.inputs.shape),
        "targets": entries.targets,
        "scale": scale,
        "offset": offset,
    }


def unpack(arrays: Packed) -> Entries:
    """Return the entries in packed arrays.

    Raises:
        DataError: ``share.malformed``: they do not have the form of ``pack``.
    """
    check_packed(arrays)
    inputs = arrays["inputs"]
    if inputs.dtype == np.uint8:
        shape = (-1, *[1] * (inputs.ndim - 1))
        scale, offset = arrays["scale"].reshape(shape), arrays["offset"].reshape(shape)
        inputs = offset + scale * inputs.astype(np.float32)
    return Entries(inputs, arrays["targets"])


def check_packed(arrays: Packed) -> None:
    """Check that arrays have the form of ``pack``.

    Raises:
        DataError: ``share.malformed``, with the problem.
    """
    names = {"inputs", "targets"}
    if arrays.get("inputs", np.empty(0)).dtype == np.uint8:
        names |= {"scale", "offset"}
    if arrays.keys() != names:
        raise malformed(f"it holds {', '.join(sorted(arrays)) or 'nothing'}")
    inputs, targets = arrays["inputs"], arrays["targets"]
    kinds = {array.dtype for name, array in arrays.items() if name != "inputs"}
    if kinds != {np.dtype(np.float32)} or inputs.dtype not in (np.uint8, np.float32, np.int64):
        raise malformed("its numbers are of another kind")
    if targets.ndim != 2 or inputs.ndim < 2 or len(inputs) != len(targets) or not len(inputs):
        raise malformed(f"it holds inputs {inputs.shape} and targets {targets.shape}")
    for name in ("scale", "offset"):
        if name in arrays and arrays[name].shape != (len(inputs),):
            raise malformed(f"its {name} is not one number for each entry")
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise malformed("it holds NaN or infinity")


def check_fits(
    arrays: Packed, shape: tuple[int, ...], classes: int, *, tokens: bool = False
) -> None:
    """Check that averaged data are of this run's inputs and labels.

    Args:
        arrays: packed entries.
        shape: of one entry's inputs.
        classes: of one target.
        tokens: whether inputs are raw tokens.

    Raises:
        DataError: ``share.malformed`` or ``share.foreign``.
    """
    check_packed(arrays)
    if (arrays["inputs"].dtype.kind == "i") != tokens:
        raise malformed("its numbers are of another kind")
    for name, wanted in (("inputs", shape), ("targets", (classes,))):
        actual = tuple(arrays[name].shape[1:])
        if actual != wanted:
            raise DataError(
                f"Averaged data are of another run: {name} are {actual}, not {wanted}.",
                code="share.foreign",
            )


def check_shares(arrays: Packed) -> None:
    """Check that each target is a label distribution: shares of sum 1, up to rounding.

    Raises:
        DataError: ``share.malformed``.
    """
    if not are_shares(arrays["targets"]):
        raise malformed("its targets are not label distributions, which sum to 1")


def are_shares(targets: Array) -> bool:
    """Return whether each row of targets (n, classes) is a label distribution, with sum 1."""
    if not len(targets):
        return True
    wide = targets.astype(np.float64)
    return bool(wide.min() >= 0 and np.abs(wide.sum(axis=1) - 1).max() <= ROUNDING)


def malformed(what: str) -> DataError:
    """Return the error of arrays that are not averaged data."""
    return DataError(f"Averaged data cannot be read: {what}.", code="share.malformed")

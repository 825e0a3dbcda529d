"""Checks of a matching's arguments: finite weights, equal shapes, possible bounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgefed.errors import LOWER_RATE, DataError
from edgefed.learn.base.types import Array


def check_weights(weights: Sequence[Array]) -> None:
    """Require a matrix of finite numbers of every device, with equally many columns.

    Raises:
        DataError: the weights cannot be matched.
    """
    if not weights:
        raise DataError("There are no devices to match.", code="matching.devices")
    widths = {weight.shape[1] if weight.ndim == 2 else None for weight in weights}
    if len(widths) > 1 or None in widths:
        shapes = ", ".join(str(weight.shape) for weight in weights[:8])
        raise _unfit(f"Devices have units of different sizes: {shapes}.")
    for device, weight in enumerate(weights):
        check_finite(device, weight)


def check_finite(device: int, weights: Array) -> None:
    """Require finite weights."""
    if not np.isfinite(weights).all():
        raise DataError(
            f"The weights of device {device} contain NaN or infinity.",
            code="matching.values",
            hint=LOWER_RATE,
        )


def check_devices(devices: int, weights: Sequence[Array]) -> None:
    """Require that the prior counts at least the devices that are matched."""
    if devices < len(weights):
        raise DataError(
            f"{len(weights)} devices are matched, but only {devices} count.",
            code="matching.devices",
        )


def check_mean(mean: Array, weights: Sequence[Array]) -> None:
    """Require that the mean of atoms is finite: one number, or one a column."""
    if mean.shape not in {(1,), weights[0].shape[1:]} or not np.isfinite(mean).all():
        raise _unfit("The mean of atoms is not a number, or one a column.")


def check_precisions(relative: Sequence[Array], weights: Sequence[Array]) -> None:
    """Require a finite, non-negative precision of each device, one number or one a column."""
    if len(relative) != len(weights):
        raise _unfit(f"{len(weights)} devices have {len(relative)} precisions.")
    for device, (precision, units) in enumerate(zip(relative, weights, strict=True)):
        fits = precision.shape in {(1,), units.shape[1:]} and np.isfinite(precision).all()
        if not fits or (precision < 0.0).any() or not precision.any():
            raise _unfit(
                f"The precision of device {device} is not a positive number or "
                f"{units.shape[1]} of them."
            )


def check_classes(classes: Sequence[Array], weights: Sequence[Array]) -> None:
    """Require a class of each unit."""
    if [kind.shape for kind in classes] != [weight.shape[:1] for weight in weights]:
        raise _unfit("Units and their classes differ in number.")


def check_recurrence(recurrence: Sequence[Array], weights: Sequence[Array]) -> None:
    """Require finite weights between the units of each device, in equally many gates."""
    gates = {len(weight) for weight in recurrence}
    shapes = [(len(weight), len(weight)) for weight in weights]
    if len(gates) != 1 or [weight.shape[1:] for weight in recurrence] != shapes:
        raise _unfit("Recurrent weights are not (gates, units, units).")
    for device, weight in enumerate(recurrence):
        check_finite(device, weight)


def check_bound(most: int | None, least: int) -> None:
    """Require that the bound leaves each unit of the largest device an atom."""
    if most is not None and most < least:
        raise DataError(
            f"{least} units of a device cannot be matched with at most {most} atoms.",
            code="matching.bound",
            hint="raise most_atoms",
        )


def _unfit(message: str) -> DataError:
    return DataError(message, code="matching.shape")

"""What a matching refuses: weights that are not finite, shapes that differ, impossible bounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgefed.errors import DataError
from edgefed.learn.types import Array


def check_weights(weights: Sequence[Array]) -> None:
    """Require a matrix of finite numbers of every device, with equally many columns.

    Raises:
        DataError: the weights cannot be matched.
    """
    if not weights:
        raise _refused("There are no devices to match.", "devices")
    widths = {each.shape[1] if each.ndim == 2 else None for each in weights}
    if len(widths) > 1 or None in widths:
        shapes = ", ".join(str(each.shape) for each in weights[:8])
        raise _refused(f"Devices have units of different sizes: {shapes}.", "shape")
    for device, each in enumerate(weights):
        if not np.isfinite(each).all():
            raise DataError(
                f"The weights of device {device} contain NaN or infinity.",
                code="matching.values",
                hint="lower training.learning_rate",
            )


def check_devices(devices: int, weights: Sequence[Array]) -> None:
    """Require that the prior counts at least the devices that are matched."""
    if devices < len(weights):
        raise _refused(f"{len(weights)} devices are matched, but only {devices} count.", "devices")


def check_precisions(relative: Sequence[Array], weights: Sequence[Array]) -> None:
    """Require a finite, non-negative precision of each device, one number or one a column."""
    if len(relative) != len(weights):
        raise _refused(f"{len(weights)} devices have {len(relative)} precisions.", "precision")
    for device, (each, units) in enumerate(zip(relative, weights, strict=True)):
        fits = each.shape in {(1,), units.shape[1:]}
        if not fits or not np.isfinite(each).all() or (each < 0.0).any() or not each.any():
            raise _refused(
                f"The precision of device {device} is not a positive number or "
                f"{units.shape[1]} of them.",
                "precision",
            )


def check_classes(classes: Sequence[Array], weights: Sequence[Array]) -> None:
    """Require a class of each unit."""
    if [each.shape for each in classes] != [each.shape[:1] for each in weights]:
        raise _refused("Units and their classes differ in number.", "classes")


def check_bound(most: int | None, least: int) -> None:
    """Require that the bound leaves each unit of the largest device an atom."""
    if most is not None and most < least:
        raise DataError(
            f"{least} units of a device cannot be matched with at most {most} atoms.",
            code="matching.bound",
            hint="raise most_atoms",
        )


def _refused(message: str, what: str) -> DataError:
    return DataError(message, code=f"matching.{what}")

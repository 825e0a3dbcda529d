"""Pool the means and variances that devices measured: those of all their samples together.

With shares s_j of the samples, the mean is m = Σ s_j m_j, and the variance is the mean of the
devices' variances plus the variance of their means: Σ s_j (v_j + (m_j - m)²).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from edgefed.errors import DataError
from edgefed.learn.base.permutation_groups import is_variance
from edgefed.learn.base.types import Array, Tensors

LARGEST = 1e18
"""Of a mean or a variance; the square of a mean is still a float64."""


@dataclass(frozen=True)
class MeasuredStatistics:
    """The measurements of a device.

    Attributes:
        samples: number of samples measured.
        statistics: running means and variances by weight; see ``batch_statistics``.
    """

    samples: int
    statistics: Tensors


def pooled_statistics(devices: Mapping[str, MeasuredStatistics]) -> Tensors:
    """Return running means and variances over the samples of all devices, by weight.

    The result has the same bits for any order of devices.

    Args:
        devices: measurements of the same layers, of at least one device.

    Raises:
        DataError: ``statistics.none``: no device, or ``statistics.values``; see
            ``check_statistics``.
    """
    if not devices:
        raise DataError(
            "No device measured the statistics of batch normalisation.",
            code="statistics.none",
            hint="ask more devices",
        )
    ordered = [devices[name] for name in sorted(devices)]
    like = ordered[0].statistics
    for device in ordered:
        check_statistics(device, like)
    counts = np.array([device.samples for device in ordered], np.float64)
    shares = counts / counts.sum()
    pooled: dict[str, Array] = {}
    for name in like:
        if not is_variance(name):
            pooled |= _pooled(name, [device.statistics for device in ordered], shares)
    return {name: pooled[name].astype(like[name].dtype) for name in like}


def check_statistics(device: MeasuredStatistics, like: Tensors) -> None:
    """Check the measurements of a device.

    Args:
        device: its measurements.
        like: arrays by the same names, of the same shapes.

    Raises:
        DataError: ``statistics.values``: there are no samples, or the statistics are those of other
            layers, no finite numbers, or no variances.
    """
    if device.samples < 1:
        raise _wrong("rest on no samples")
    shapes = {name: array.shape for name, array in device.statistics.items()}
    if shapes != {name: array.shape for name, array in like.items()}:
        raise _wrong("are not those of the model's layers")
    for name, array in device.statistics.items():
        if not (np.abs(array) <= LARGEST).all():
            raise _wrong(f"have a {name} that is not finite or beyond {LARGEST:g}")
        if is_variance(name) and (array < 0).any():
            raise _wrong(f"have a {name} below 0")


def _pooled(name: str, statistics: list[Tensors], shares: Array) -> dict[str, Array]:
    """Return mean and variance of a layer, given the weight that holds its means."""
    variance = f"{name.rpartition('.')[0]}.running_var"
    means = np.stack([statistic[name].astype(np.float64) for statistic in statistics])
    variances = np.stack([statistic[variance].astype(np.float64) for statistic in statistics])
    part = shares[:, None]
    mean = (part * means).sum(axis=0)
    within, between = (part * variances).sum(axis=0), (part * (means - mean) ** 2).sum(axis=0)
    return {name: mean, variance: within + between}


def _wrong(what: str) -> DataError:
    return DataError(
        f"The statistics of batch normalisation {what}.",
        code="statistics.values",
        hint="lower the learning rate, or leave out the device",
    )

"""Every device gets the numbers of samples by label that a file states, such as a real fleet's.

The samples of each label are shuffled once and dealt in turn, so devices share none while they
suffice. A device never has a sample twice: where it is to have more samples of a label than there
are, it has them all.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from edgefed.config.recipes.sections import Section
from edgefed.data.base.types import Indices
from edgefed.data.partitioners.cover import Parts
from edgefed.errors import DataError


class HistogramOptions(Section):
    """The key of the partition ``histograms``."""

    histograms: str = ""
    """With ``histograms``: a CSV file with a row for each device: the column ``device``, and for
    each label a column of numbers of samples, named by the label's number. ``edgefed advise twin``
    writes one."""


def histograms(labels: Indices, counts: Indices, rng: np.random.Generator) -> Parts:
    """Return one part for each device.

    Args:
        labels: (n,) integers in [0, classes).
        counts: (devices, labels) numbers of samples.
        rng: draws the order of samples.

    Raises:
        DataError: a device is to have samples of a label that none has.
    """
    parts: list[list[Indices]] = [[] for _ in counts]
    for label in np.flatnonzero(counts.any(axis=0)):
        order = rng.permutation(np.flatnonzero(labels == label))
        if not len(order):
            raise DataError(
                f"The data have no sample of label {label}, which the histograms name.",
                code="data.histograms",
                hint="use data that have all labels of the histograms",
            )
        begin = 0
        for part, count in zip(parts, counts[:, label].tolist(), strict=True):
            taken = np.arange(begin, begin + min(count, len(order))) % len(order)
            part.append(order[taken])
            begin += len(taken)
    nothing = np.zeros(0, np.int64)
    return tuple(rng.permutation(np.concatenate([nothing, *part])) for part in parts)


def read_histograms(options: HistogramOptions, devices: int) -> Indices:
    """Return the counts of a file, (devices, labels).

    Raises:
        DataError: ``data.histograms``: it cannot be read, or is of another number of devices.
    """
    try:
        if not options.histograms:
            raise ValueError("no file is named")
        with Path(options.histograms).open(newline="", encoding="utf-8") as lines:
            head, *rows = list(csv.reader(lines)) or [[]]
        if head != ["device", *map(str, range(len(head) - 1))]:
            raise ValueError("its columns are not device, 0, 1, 2, …")
        if len(rows) != devices:
            raise ValueError(f"it has {len(rows)} devices, and the simulation {devices}")
        counts = np.array([list(map(int, row[1:])) for row in rows], np.int64)
        if counts.shape != (devices, len(head) - 1) or counts.min(initial=0) < 0:
            raise ValueError("a cell is negative or missing")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        where = f" from {options.histograms}" if options.histograms else ""
        raise DataError(
            f"The histograms of the devices cannot be read{where}: {why}.",
            code="data.histograms",
            hint="name a CSV file in [data] histograms, with the columns device, 0, 1, 2, …",
        ) from error
    return counts

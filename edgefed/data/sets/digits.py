"""The handwritten digits of scikit-learn: 1797 grey images of 8 by 8 pixels.

The test set of the UCI ML hand-written digits data set (Alpaydin and Kaynak, 1998).
"""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edgefed.data.base.holdout import hold_out
from edgefed.data.base.types import Dataset
from edgefed.data.sets.options import DataOptions
from edgefed.errors import MissingDataError
from edgefed.files.samples import Samples
from edgefed.seeds import generator

TEST_SHARE = 0.2
BRIGHTEST = 16
"""Pixels are counts of dark dots in a block of 4 by 4."""
FILE = "datasets/data/digits.csv.gz"
"""Where scikit-learn keeps them: 64 pixels and a label in each line."""


class DigitsOptions(DataOptions):
    """Keys of ``name = "digits"``."""


def load_digits(options: DigitsOptions, folder: Path | None) -> Dataset:
    """Return inputs (n, 1, 8, 8) in [0, 1] and ten labels; every run tests on the same fifth.

    Raises:
        MissingDataError: scikit-learn is not installed.
    """
    images, labels = _images_and_labels()
    inputs = (images / BRIGHTEST).astype(np.float32).reshape(-1, 1, 8, 8)
    samples = Samples(inputs, labels)
    # The split has a seed of its own, so that runs with different seeds compare on one test set.
    train, test = hold_out(samples, TEST_SHARE, generator(0, "data", "digits", "test"))
    return Dataset(train, test, classes=10, shape=(1, 8, 8))


def _images_and_labels() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return pixels (n, 64) and labels; to import scikit-learn for them takes most of a second."""
    spec = find_spec("sklearn")
    if spec is None:
        raise MissingDataError(
            "The data set 'digits' is part of scikit-learn, which is not installed.",
            code="data.missing",
            hint="pip install 'edgefed[demo]'",
        )
    for place in spec.submodule_search_locations or ():
        file = Path(place) / FILE
        if file.is_file():
            with gzip.open(file, "rt") as lines:
                rows = np.loadtxt(lines, np.uint8, delimiter=",")  # a sixth of the time of floats
            return rows[:, :-1].astype(np.float64), rows[:, -1].astype(np.int64)
    from sklearn import datasets

    images, labels = datasets.load_digits(return_X_y=True)
    return images, labels.astype(np.int64)

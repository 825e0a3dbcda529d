"""The handwritten digits of scikit-learn: 1797 grey images of 8 by 8 pixels.

The test set of the UCI ML hand-written digits data set (Alpaydin and Kaynak, 1998).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgefed.data.holdout import hold_out
from edgefed.data.options import DataOptions
from edgefed.data.types import Dataset
from edgefed.errors import MissingDataError
from edgefed.samples import Samples
from edgefed.seeds import generator

TEST_SHARE = 0.2
BRIGHTEST = 16
"""Pixels are counts of dark dots in a block of 4 by 4."""


class DigitsOptions(DataOptions):
    """Keys of ``name = "digits"``."""


def load_digits(options: DigitsOptions, folder: Path | None) -> Dataset:
    """Return inputs (n, 1, 8, 8) in [0, 1] and ten labels; every run tests on the same fifth.

    Raises:
        MissingDataError: scikit-learn is not installed.
    """
    try:
        from sklearn import datasets
    except ImportError as error:
        raise MissingDataError(
            "The data set 'digits' is part of scikit-learn, which is not installed.",
            code="data.missing",
            hint="pip install 'edgefed[demo]'",
        ) from error
    images, labels = datasets.load_digits(return_X_y=True)
    inputs = (images / BRIGHTEST).astype(np.float32).reshape(-1, 1, 8, 8)
    samples = Samples(inputs, labels.astype(np.int64))
    # The split has a seed of its own, so that runs with different seeds compare on one test set.
    train, test = hold_out(samples, TEST_SHARE, generator(0, "data", "digits", "test"))
    return Dataset(train, test, classes=10, shape=(1, 8, 8))

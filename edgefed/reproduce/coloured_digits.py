"""Coloured digits, so that the smallest scale of a table about colours needs no file.

Each digit of scikit-learn's is drawn in a random hue, which says nothing about its label.
"""

from __future__ import annotations

import colorsys
import io
from pathlib import Path

import numpy as np

from edgefed.config.recipes.recipe import DataSection
from edgefed.data.base.types import Array
from edgefed.data.sets.datasets import load
from edgefed.files.samples import Samples
from edgefed.files.writing import write_atomic
from edgefed.seeds import generator


def coloured_digits(path: Path) -> Path:
    """Write the same images as every time, unless they are there, and return their path.

    Raises:
        MissingDataError: scikit-learn is not installed.
        StorageError: the disk does not take them.
    """
    digits = load(DataSection(name="digits"), None, 0)
    content = io.BytesIO()
    np.savez(
        content,
        x_train=_coloured(digits.train, "train"),
        y_train=digits.train.targets,
        x_test=_coloured(digits.test, "test"),
        y_test=digits.test.targets,
    )
    if not path.is_file() or path.read_bytes() != content.getvalue():
        write_atomic(path, content.getvalue())
    return path


def _coloured(samples: Samples, part: str) -> Array:
    """Return images as uint8 (n, height, width, 3)."""
    rng = generator(0, "reproduce", "coloured", part)
    hues = rng.random(len(samples))
    colours = np.array([colorsys.hsv_to_rgb(hue, 1.0, 1.0) for hue in hues])
    images = samples.inputs[:, 0, :, :, None] * colours[:, None, None, :]
    coloured: Array = np.round(255 * images).astype(np.uint8)
    return coloured

"""Random 64-bit words for privacy noise: from the operating system, or from a test's generator."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

RandomWords = Callable[[int], Words]
"""Returns so many independent uniform words."""


def operating_system_words(count: int) -> Words:
    """Return words that the operating system draws, without a generator in between."""
    return np.frombuffer(os.urandom(8 * count), np.uint64)


def generator_words(generator: np.random.Generator) -> RandomWords:
    """Return a source of the raw words of a generator with 64-bit outputs."""
    return lambda count: np.asarray(generator.bit_generator.random_raw(count), np.uint64)

"""Randomness for privacy noise: from the operating system, never from a run's seed.

A party that knows the seed of the noise can subtract it, and the coordinator knows the run's seed.
The generator is therefore not a setting: only code that creates a ``Worker`` can pass another one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgefed.algorithms.interface.device_side import operating_system_generator
from edgefed.sharing.random_words import RandomWords, operating_system_words
from edgefed.wire.messages import Task

PrivateRandomness = Callable[[Task], np.random.Generator]
"""Returns the generator of one task's privacy noise."""


def from_operating_system(task: Task) -> np.random.Generator:
    """Return a new generator with a seed of the operating system, independent of the task."""
    del task
    return operating_system_generator()


def words_of(randomness: PrivateRandomness) -> RandomWords | None:
    """Return the operating system's own words; None where another generator was passed."""
    return operating_system_words if randomness is from_operating_system else None

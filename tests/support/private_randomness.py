"""Privacy noise that tests can repeat; only a Python constructor takes it, no setting does."""

from __future__ import annotations

import numpy as np

from edgefed.seeds import derive
from edgefed.sharing.random_words import RandomWords, generator_words


def of_round(number: int, purpose: str) -> RandomWords:
    """Return the coordinator's words of a round, which here anybody can derive."""
    return generator_words(np.random.default_rng(derive(9, purpose, number)))

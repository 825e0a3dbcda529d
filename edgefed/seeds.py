"""Seeds for every random draw, derived from names, so that no draw depends on another's order.

A seed is the first 8 bytes of SHA-256 over the run seed and the words that name its purpose, such
as ``derive(seed, "round", 3, "device-07", "shuffle")``. The same words give the same seed on every
machine. Noise that protects privacy must never come from here: it is seeded by the device's
operating system.

numpy's Philox takes all 63 bits of a seed. Torch's generator on a CPU, a Mersenne Twister, takes
the lower 32 bits only.
"""

from __future__ import annotations

import hashlib

import numpy as np

SEPARATOR = "\x1f"
"""Separates the hashed words, none of which may contain it."""


def derive(seed: int, *purpose: str | int) -> int:
    """Return a seed in [0, 2**63) for one purpose under a run seed.

    Different words are hashed as different texts; a number counts as the word of its digits.

    Raises:
        ValueError: a word contains the separator.
    """
    words = [str(seed), *(str(word) for word in purpose)]
    if any(SEPARATOR in word for word in words):
        raise ValueError(f"a word of {purpose!r} contains {SEPARATOR!r}, which separates words")
    text = SEPARATOR.join(words)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """Return a numpy generator for one purpose under a run seed."""
    return np.random.Generator(np.random.Philox(derive(seed, *purpose)))

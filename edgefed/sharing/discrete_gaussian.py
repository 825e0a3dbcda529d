"""The discrete Gaussian: integers x with probability proportional to exp(-x² / 2σ²), drawn exactly.

Canonne, Kamath, Steinke: The Discrete Gaussian for Differential Privacy, NeurIPS 2020. Added to
integers, it has the Rényi divergences of the continuous Gaussian or smaller ones, and none of the
weaknesses of floating-point noise (Mironov, CCS 2012), where the values that can occur depend on
the secret.

σ is a power of two, 2^k. Drawn are x = V σ + U ≥ 0 and a sign, as in Karney's method for the normal
distribution (ACM TOMS 2016), with which it shares that no probability is rounded:

    U uniform on 0 … σ - 1          k random bits
    V geometric, P(V) = 2^-(V+1)    zeros before the first one of 23 random bits
    accepted with probability       2^(V-1) exp((1 - (x/σ)²) / 2)
    -0 is rejected

The accepting comparison is of a 64-bit random word with a float64 whose error is known. Where they
are nearer to each other than that, about once in 2^44 draws, decimal arithmetic and further random
bits decide. Only V > 22 is missing, whose probability is below 2^-380.
"""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import numpy.typing as npt

from edgefed.sharing.random_words import RandomWords

MOST_BITS = 40
"""Largest k."""

_GEOMETRIC_BITS = 23

_MARGIN = 2.0**-45
"""More than the errors of the compared float64 together, which are below 2^-50."""

_BLOCK = 1 << 16
"""Values drawn at a time, so that the temporaries stay in the cache."""

_EXTRA_WORDS = 64
"""Number of words drawn beyond those that are likely to be accepted."""

Integers = npt.NDArray[np.int64]


def discrete_gaussian(bits: int, count: int, words: RandomWords) -> Integers:
    """Return ``count`` independent draws with σ = 2^``bits``."""
    if not 0 <= bits <= MOST_BITS:
        raise ValueError(f"the discrete Gaussian has 0 to {MOST_BITS} bits, not {bits}")
    drawn = np.empty(count, np.int64)
    for start in range(0, count, _BLOCK):
        _fill(drawn[start : start + _BLOCK], bits, words)
    return drawn


def _fill(values: Integers, bits: int, words: RandomWords) -> None:
    """Put draws into all of ``values``."""
    filled = 0
    while filled < len(values):
        wanted = 2 * (len(values) - filled) + _EXTRA_WORDS
        accepted = _accepted(words(wanted), words(wanted), bits, words)[: len(values) - filled]
        values[filled : filled + len(accepted)] = accepted
        filled += len(accepted)


def _accepted(
    proposals: npt.NDArray[np.uint64],
    thresholds: npt.NDArray[np.uint64],
    bits: int,
    words: RandomWords,
) -> Integers:
    """Return the draws that come of proposals, one word for each, and words to accept by."""
    high = proposals >> np.uint64(64 - _GEOMETRIC_BITS)
    negative = (proposals >> np.uint64(bits)) & np.uint64(1) == 1
    whole = _leading_zeros(high)
    x = (whole << bits) + (proposals & np.uint64((1 << bits) - 1)).astype(np.int64)
    ratio = np.ldexp(x.astype(np.float64), -bits)
    likely = np.ldexp(np.exp((1.0 - ratio * ratio) / 2), whole - 1)
    uniform = np.ldexp(thresholds.astype(np.float64), -64)
    taken = uniform < likely
    near = np.abs(uniform - likely) < _MARGIN
    for index in np.flatnonzero(near):
        taken[index] = _is_below(
            int(thresholds[index]), int(whole[index]), int(x[index]), bits, words
        )
    taken &= (whole < _GEOMETRIC_BITS) & ~(negative & (x == 0))
    signed: Integers = np.where(negative, -x, x)[taken]
    return signed


def _leading_zeros(high: npt.NDArray[np.uint64]) -> Integers:
    """Return how many of 23 bits are 0 before the first 1."""
    # frexp gives the exponent of the highest bit, exactly: the numbers are far below 2^53.
    _, exponent = np.frexp(high.astype(np.float64))
    return (_GEOMETRIC_BITS - exponent).astype(np.int64)


def _is_below(word: int, whole: int, x: int, bits: int, words: RandomWords) -> bool:
    """Whether a uniform number that begins with the bits of ``word`` is below the probability."""
    drawn, length = word, 64
    while True:
        with localcontext() as context:
            context.prec = 40 + length
            ratio = Decimal(x) / Decimal(2**bits)
            likely = Decimal(2) ** (whole - 1) * ((1 - ratio * ratio) / 2).exp()
            error = Decimal(2) ** -(length + 8)
            low, high = Decimal(drawn) / 2**length, Decimal(drawn + 1) / 2**length
            if high <= likely - error:
                return True
            if low >= likely + error:
                return False
        drawn, length = (drawn << 64) | int(words(1)[0]), length + 64

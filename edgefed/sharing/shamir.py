"""Shamir's secret sharing of 32-byte secrets over a prime field.

Shamir: How to Share a Secret, Communications of the ACM 22(11), 1979. A secret s is the value at 0
of a random polynomial f of degree t - 1. The share of place x, from 1, is f(x). Any t shares give
s, and fewer disclose nothing about it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from edgefed.errors import DataError

PRIME = 2**257 - 93
"""The largest prime below 2^257, so that every secret of 256 bits is a number of the field."""

SECRET_BYTES = 32
SHARE_BYTES = 33

_DRAWN_BYTES = 56
"""Bytes of a draw: reduced modulo ``PRIME``, its bias is below 2^-190."""


def split(
    secret: bytes, threshold: int, count: int, draw: Callable[[int], bytes]
) -> tuple[bytes, ...]:
    """Return the shares of the places 1 to ``count``.

    Args:
        secret: 32 bytes.
        threshold: how many shares give the secret.
        count: how many shares are made.
        draw: returns random bytes.
    """
    if len(secret) != SECRET_BYTES or not 1 <= threshold <= count:
        raise ValueError(f"{len(secret)} bytes cannot be split {threshold} of {count}")
    drawn = [int.from_bytes(draw(_DRAWN_BYTES), "big") % PRIME for _ in range(threshold - 1)]
    coefficients = [*drawn, int.from_bytes(secret, "big")]  # the highest power first
    return tuple(_value(coefficients, x).to_bytes(SHARE_BYTES, "big") for x in range(1, count + 1))


def combine(shares: Mapping[int, bytes]) -> bytes:
    """Return the secret of shares by place; the threshold states how many are needed.

    Raises:
        DataError: ``secure.shares``: the shares are not of one secret of 32 bytes. Other wrong
            shares give another secret, so their receiver compares it with a commitment.
    """
    places = sorted(shares)
    values = [_field_element(shares[place]) for place in places]
    weights = weights_at_zero(tuple(places))
    secret = sum(w * y for w, y in zip(weights, values, strict=True)) % PRIME
    if secret >= 2 ** (8 * SECRET_BYTES):
        raise _not_shares("do not fit together")
    return secret.to_bytes(SECRET_BYTES, "big")


@lru_cache(maxsize=64)  # the secrets of a cohort are mostly combined from the same places
def weights_at_zero(places: tuple[int, ...]) -> tuple[int, ...]:
    """Return Lagrange's weights of values at these places for the value at 0."""
    if len(set(places)) < len(places) or not all(0 < place < PRIME for place in places):
        raise _not_shares("have wrong places")
    weights = []
    for own in places:
        above = below = 1
        for other in places:
            if other != own:
                above = above * other % PRIME
                below = below * (other - own) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return tuple(weights)


def _value(coefficients: Sequence[int], x: int) -> int:
    total = 0
    for coefficient in coefficients:
        total = (total * x + coefficient) % PRIME
    return total


def _field_element(share: bytes) -> int:
    number = int.from_bytes(share, "big")
    if len(share) != SHARE_BYTES or number >= PRIME:
        raise _not_shares("are not numbers of the field")
    return number


def _not_shares(why: str) -> DataError:
    return DataError(
        f"Shares of a secret {why}.",
        code="secure.shares",
        hint="a device sent shares that it did not receive, or made wrong ones",
    )

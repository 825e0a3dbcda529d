"""Shamir's secret sharing: t shares give the secret, fewer fit every secret, wrong ones show."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.errors import DataError
from edgefed.sharing.shamir import (
    PRIME,
    SECRET_BYTES,
    SHARE_BYTES,
    combine,
    split,
    weights_at_zero,
)

SECRETS = st.binary(min_size=SECRET_BYTES, max_size=SECRET_BYTES)


def drawing(seed: int) -> Callable[[int], bytes]:
    """Return random bytes that are the same in every test run."""
    return np.random.default_rng(seed).bytes


def test_the_modulus_is_the_largest_prime_below_two_to_257() -> None:
    def is_prime(number: int) -> bool:
        """Miller and Rabin's test, with 40 fixed bases."""
        odd, twos = number - 1, 0
        while odd % 2 == 0:
            odd, twos = odd // 2, twos + 1
        for base in range(2, 42):
            power = pow(base, odd, number)
            powers = [pow(power, 2**each, number) for each in range(twos)]
            if power != 1 and number - 1 not in powers:
                return False
        return True

    assert [n for n in range(2**257 - 93, 2**257) if is_prime(n)] == [PRIME]


def test_shares_are_the_values_of_the_polynomial_at_their_places() -> None:
    drawn = iter([(5).to_bytes(56, "big"), (7).to_bytes(56, "big")])
    secret = (11).to_bytes(32, "big")
    shares = split(secret, 3, 4, lambda count: next(drawn))
    # f(x) = 5 x^2 + 7 x + 11
    assert [int.from_bytes(share, "big") for share in shares] == [23, 45, 77, 119]
    assert all(len(share) == SHARE_BYTES for share in shares)


@given(
    secret=SECRETS,
    sizes=st.integers(1, 12).flatmap(lambda t: st.tuples(st.just(t), st.integers(t, 16))),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=30, deadline=None)
def test_any_threshold_of_shares_gives_the_secret(
    secret: bytes, sizes: tuple[int, int], seed: int
) -> None:
    threshold, count = sizes
    shares = split(secret, threshold, count, drawing(seed))
    picked = np.random.default_rng(seed).permutation(count)
    for extra in range(count - threshold + 1):
        places = [int(place) for place in picked[: threshold + extra]]
        assert combine({place + 1: shares[place] for place in places}) == secret


@given(secret=SECRETS, other=SECRETS, seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_fewer_shares_fit_every_secret(secret: bytes, other: bytes, seed: int) -> None:
    shares = split(secret, 3, 5, drawing(seed))
    # Two of three shares and any secret at 0 determine a polynomial of degree 2, whose value at a
    # third place is a valid share: so two shares exclude no secret.
    known = {0: int.from_bytes(other, "big")}
    known |= {place: int.from_bytes(shares[place - 1], "big") for place in (2, 4)}
    total = 0
    for place, value in known.items():
        above = below = 1
        for each in known:
            if each != place:
                above, below = above * (5 - each) % PRIME, below * (place - each) % PRIME
        total += value * above * pow(below, -1, PRIME)
    third = (total % PRIME).to_bytes(SHARE_BYTES, "big")
    assert combine({2: shares[1], 4: shares[3], 5: third}) == other


def test_a_changed_share_gives_another_secret_or_none() -> None:
    secret = bytes(range(32))
    shares = list(split(secret, 3, 5, drawing(1)))
    for place in range(3):
        for byte in (0, 15, 32):
            changed = bytearray(shares[place])
            changed[byte] ^= 1
            told = {n + 1: shares[n] for n in range(3)} | {place + 1: bytes(changed)}
            try:
                found = combine(told)
            except DataError as error:
                assert error.code == "secure.shares"
                continue
            assert found != secret


@pytest.mark.parametrize(
    "shares",
    [
        {1: b"\xff" * SHARE_BYTES, 2: bytes(SHARE_BYTES)},
        {1: PRIME.to_bytes(SHARE_BYTES, "big"), 2: bytes(SHARE_BYTES)},
        {1: bytes(SHARE_BYTES - 1), 2: bytes(SHARE_BYTES)},
        {0: bytes(SHARE_BYTES), 2: bytes(SHARE_BYTES)},
    ],
    ids=["above the modulus", "the modulus", "short", "place 0, which is the secret's"],
)
def test_what_is_no_share_is_refused(shares: dict[int, bytes]) -> None:
    with pytest.raises(DataError, match="Shares of a secret"):
        combine(shares)


def test_weights_belong_to_places_that_differ() -> None:
    with pytest.raises(DataError, match="wrong places"):
        weights_at_zero((3, 3))
    with pytest.raises(ValueError, match="cannot be split"):
        split(bytes(32), 4, 3, drawing(1))

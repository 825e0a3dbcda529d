"""Masks and keys: what two devices agree on, what cancels, and what looks like random numbers."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from edgefed.errors import WireError
from edgefed.sharing.masking import BLOCK, add_mask, packed, signed, unpacked
from edgefed.sharing.pairwise_keys import agreed_key, commitment, open_sealed, public_key, seal

A, B, C = (bytes([number]) * 32 for number in (1, 2, 3))
"""Private keys."""


def test_a_mask_is_the_key_stream_however_long_the_vector() -> None:
    cells = np.arange(2 * BLOCK + 5, dtype=np.uint64)
    masked = cells.copy()
    add_mask(masked, A, +1)
    stream = Cipher(ChaCha20(A, bytes(16)), mode=None).encryptor().update(bytes(8 * cells.size))
    with np.errstate(over="ignore"):
        assert np.array_equal(masked - cells, np.frombuffer(stream, "<u8"))
    add_mask(masked, A, -1)
    assert np.array_equal(masked, cells)


def test_both_devices_of_a_pair_derive_the_same_key_and_nobody_else_does() -> None:
    key = agreed_key(A, public_key(B), b"purpose")
    assert key == agreed_key(B, public_key(A), b"purpose")
    others = {
        agreed_key(A, public_key(B), b"another purpose"),
        agreed_key(A, public_key(C), b"purpose"),
        agreed_key(C, public_key(B), b"purpose"),
    }
    assert key not in others
    assert len(others) == 3


def test_a_key_of_low_order_is_refused() -> None:
    with pytest.raises(WireError, match="not a key"):
        agreed_key(A, bytes(32), b"purpose")


def test_what_is_sealed_opens_only_as_it_was_sealed() -> None:
    key = agreed_key(A, public_key(B), b"purpose")
    sealed = seal(key, bytes(12), b"text", b"context")
    assert open_sealed(key, sealed, b"context") == b"text"
    assert b"text" not in sealed
    wrong = [(key, sealed, b"other"), (C, sealed, b"context"), (key, sealed[:9], b"context")]
    wrong += [
        (key, sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :], b"context")
        for at in range(len(sealed))
    ]
    for told in wrong:
        with pytest.raises(WireError, match="cannot be read"):
            open_sealed(*told)


def test_a_commitment_fits_one_secret() -> None:
    assert commitment(A) == commitment(A) != commitment(B)


@pytest.mark.parametrize("width", range(1, 9))
def test_numbers_keep_value_and_sign_in_as_many_bytes_as_they_need(width: int) -> None:
    most = 2 ** (8 * width - 1) - 1
    numbers = np.array([0, 1, -1, most, -most - 1, most // 3], np.int64)
    wire = packed(numbers.view(np.uint64), width)
    assert wire.size == width * numbers.size
    assert np.array_equal(signed(unpacked(wire, width), width), numbers)

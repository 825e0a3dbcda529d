"""A device's next key is its own if the key before signed it, whatever the authority certifies."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edgefed.errors import NotAllowedError
from edgefed.trust.known_device_keys import KnownKeys
from edgefed.trust.succession import (
    MOST_KEYS,
    Succession,
    delete_succession,
    joined,
    parted,
    save_succession,
    sign_next_key,
    succession_of,
)

KEYS = [Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in range(MOST_KEYS + 3)]
RAW = [key.public_key().public_bytes_raw() for key in KEYS]


def line(*places: int) -> Succession:
    """Return the succession of these keys."""
    made = Succession((RAW[places[0]],))
    for before, after in pairwise(places):
        made = made.followed_by(KEYS[before], RAW[after])
    return made


def test_a_key_leads_to_those_that_follow_it_and_to_no_other() -> None:
    made = line(0, 1, 2, 3)
    for known in range(4):
        for key in range(4):
            assert made.leads(RAW[known], RAW[key]) == (known <= key)
    assert not made.leads(RAW[0], RAW[5])
    assert not made.leads(RAW[5], RAW[3])
    assert line(5).leads(RAW[5], RAW[5])


def test_a_link_that_another_key_signed_leads_nowhere() -> None:
    forged = Succession(
        (RAW[0], RAW[9]), (KEYS[9].sign(b"edgefed next key 1\0" + RAW[0] + RAW[9]),)
    )
    assert not forged.leads(RAW[0], RAW[9])
    spliced = Succession((RAW[0], RAW[2]), line(1, 2).signatures)
    assert not spliced.leads(RAW[0], RAW[2])
    broken = line(0, 1, 2)
    broken = Succession(broken.keys, (bytes(64), broken.signatures[1]))
    assert not broken.leads(RAW[0], RAW[2])
    assert broken.leads(RAW[1], RAW[2])


def test_a_next_key_that_was_never_used_is_replaced_by_another() -> None:
    made = line(0, 1, 2).followed_by(KEYS[1], RAW[7])
    assert made.keys == (RAW[0], RAW[1], RAW[7])
    assert made.leads(RAW[0], RAW[7])
    anew = made.followed_by(KEYS[8], RAW[9])
    assert anew.keys == (RAW[8], RAW[9])


def test_the_newest_keys_are_kept() -> None:
    made = line(*range(MOST_KEYS + 3))
    assert made.keys == tuple(RAW[3:])
    assert made.leads(RAW[3], RAW[-1])
    assert not made.leads(RAW[2], RAW[-1])
    assert Succession.from_bytes(made.to_bytes()) == made


def test_it_is_beside_the_credentials_and_about_their_key(tmp_path: Path) -> None:
    folder = tmp_path / "cam-1"
    assert succession_of(folder, RAW[0]) == Succession((RAW[0],))
    save_succession(folder, line(0, 1))
    assert succession_of(folder, RAW[0]) == succession_of(folder, RAW[1]) == line(0, 1)
    assert succession_of(folder, RAW[5]) == Succession((RAW[5],))
    (file,) = tmp_path.iterdir()
    file.write_bytes(b"damaged")
    assert succession_of(folder, RAW[1]) == Succession((RAW[1],))


def test_a_next_key_is_written_down_and_one_in_use_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "cam-1"
    sign_next_key(folder, KEYS[0], RAW[0])
    assert not list(tmp_path.iterdir())
    sign_next_key(folder, KEYS[0], RAW[1])
    sign_next_key(folder, KEYS[1], RAW[2])
    assert succession_of(folder, RAW[2]) == line(0, 1, 2)
    delete_succession(folder)
    delete_succession(folder)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("length", [0, 31, 33, 96, 32 + 96 * MOST_KEYS])
def test_what_cannot_be_read_is_refused(length: int) -> None:
    with pytest.raises(NotAllowedError):
        Succession.from_bytes(bytes(length))
    with pytest.raises(NotAllowedError):
        parted(b"\xff\xff" + bytes(length))
    assert parted(joined(b"certificate", line(0, 1))) == (b"certificate", line(0, 1))


def test_a_known_device_keeps_its_key_or_shows_the_way_to_its_next_one(tmp_path: Path) -> None:
    def known() -> KnownKeys:
        return KnownKeys(tmp_path / "known")  # as after a restart

    known().check("cam-1", RAW[0], line(0))
    known().check("cam-1", RAW[0], line(0))
    with pytest.raises(NotAllowedError, match="another key than before") as raised:
        known().check("cam-1", RAW[9], line(9))
    assert raised.value.code == "trust.known_key"
    assert str(tmp_path / "known" / "cam-1") in raised.value.hint
    known().check("cam-2", RAW[9], line(9))
    known().check("cam-1", RAW[2], line(0, 1, 2))
    with pytest.raises(NotAllowedError):  # a copy of a key that was replaced
        known().check("cam-1", RAW[0], line(0, 1, 2))
    (tmp_path / "known" / "cam-1").write_text("damaged")
    with pytest.raises(NotAllowedError):
        known().check("cam-1", RAW[2], line(0, 1, 2))
    (tmp_path / "known" / "cam-1").unlink()
    known().check("cam-1", RAW[9], line(9))

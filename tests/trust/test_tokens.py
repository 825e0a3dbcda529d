"""Enrolment tokens: copied or typed, and noticed when a character is wrong."""

from __future__ import annotations

import secrets

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.errors import UsageError
from edgefed.trust.tokens import Token, is_proof, new_token, parse_token, proof

TOKEN = Token(bytes(range(32)), bytes(range(100, 116)), "hub.example", 8884, "plant-a", "cam-1")
ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"

names = st.from_regex(r"[a-z0-9][a-z0-9-]{0,63}", fullmatch=True)
hosts = st.sampled_from(["192.0.2.7", "2001:db8::1", "hub", "a" * 253])


@given(
    st.builds(
        Token,
        st.binary(min_size=32, max_size=32),
        st.binary(min_size=16, max_size=16),
        hosts,
        st.integers(1, 65535),
        names,
        st.just("") | names,
    )
)
@settings(deadline=None)
def test_a_token_reads_as_it_was_written(token: Token) -> None:
    text = token.text()
    assert parse_token(text) == token
    typed = " ".join(text[i : i + 7].upper() for i in range(0, len(text), 7)) + "\n"
    assert parse_token(typed.replace(" ", "-", 1)) == token


@given(st.data())
@settings(deadline=None)
def test_a_wrong_or_missing_character_is_noticed(data: st.DataObject) -> None:
    text = TOKEN.text()
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from(ALPHABET + "01!ß").filter(lambda c: c != text[place]))
    for damaged in (text[:place] + other + text[place + 1 :], text[:place] + text[place + 1 :]):
        with pytest.raises(UsageError) as caught:
            parse_token(damaged)
        assert caught.value.code == "enrol.token"


@pytest.mark.parametrize("text", ["", " ", "-", "a", "no token", "a" * 5000, TOKEN.text() * 2])
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not valid"):
        parse_token(text)


def test_a_token_is_short_and_hides_its_secret() -> None:
    assert len(TOKEN.text()) < 150
    assert TOKEN.secret.hex() not in repr(TOKEN) + TOKEN.id
    assert str(TOKEN.secret) not in repr(TOKEN)
    other = new_token(TOKEN.authority_key, "hub", 1, "f", "", secrets.token_bytes)
    assert other.id != TOKEN.id
    assert other.proof_key != TOKEN.proof_key
    assert TOKEN.proof_key not in TOKEN.secret + TOKEN.id.encode()


def test_a_proof_holds_for_its_key_its_purpose_and_the_boundaries_of_its_parts() -> None:
    key = TOKEN.proof_key
    told = proof(key, b"request", b"ab", b"c")
    assert is_proof(told, key, b"request", b"ab", b"c")
    assert not is_proof(told, key, b"request", b"a", b"bc")
    assert not is_proof(told, key, b"response", b"ab", b"c")
    assert not is_proof(told, bytes(32), b"request", b"ab", b"c")

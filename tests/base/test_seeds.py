"""Seeds from names."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edgefed.seeds import derive, generator

SEEDS = (5, 5 + 2**32, 5 + 2**31)

words = st.lists(st.one_of(st.text("abc-/ \n", max_size=4), st.integers(0, 99)), max_size=4)


def test_seeds_are_the_same_on_every_machine() -> None:
    first = hashlib.sha256(b"7\x1fround\x1f3").digest()[:8]
    assert derive(7, "round", 3) == derive(7, "round", "3") == int.from_bytes(first, "big") >> 1
    assert generator(7, "x").integers(0, 2**32) == 3425827737


@given(seed=st.integers(0, 2**63 - 1), purpose=words)
def test_a_seed_fits_everywhere(seed: int, purpose: list[str | int]) -> None:
    assert 0 <= derive(seed, *purpose) < 2**63


@given(one=words, two=words, seed=st.integers(0, 5), other=st.integers(0, 5))
def test_other_words_give_another_seed(
    one: list[str | int], two: list[str | int], seed: int, other: int
) -> None:
    same = (seed, *map(str, one)) == (other, *map(str, two))
    assert (derive(seed, *one) == derive(other, *two)) == same


def test_words_are_not_run_together() -> None:
    assert derive(1, "ab", "c") != derive(1, "a", "bc") != derive(1, "abc")
    assert derive(1, "2") != derive(12)


@pytest.mark.parametrize("purpose", [("a\x1f", "b"), ("a", "\x1fb"), ("a\x1fb",), ("\x1f",)])
def test_a_word_with_the_separator_is_refused(purpose: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="separates words"):
        derive(1, *purpose)


def test_torch_takes_the_lower_half_of_a_seed_on_a_cpu() -> None:
    draws = [torch.rand(4, generator=torch.Generator().manual_seed(seed)) for seed in SEEDS]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_generators_of_one_purpose_draw_alike_and_apart_from_others() -> None:
    draws = [generator(1, name).random(4) for name in ("a", "a", "b")]
    assert np.array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])

"""The discrete Gaussian: its probabilities, its exactness, and where its randomness comes from."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy import stats

from edgefed.sharing import discrete_gaussian as module
from edgefed.sharing.discrete_gaussian import discrete_gaussian
from edgefed.sharing.random_words import Words, generator_words, operating_system_words

DRAWS = 200_000


def seeded(seed: int = 1) -> Callable[[int], Words]:
    return generator_words(np.random.default_rng(seed))


@pytest.mark.parametrize("bits", [0, 1, 2, 3])
def test_small_deviations_have_the_probabilities_of_the_definition(bits: int) -> None:
    drawn = discrete_gaussian(bits, DRAWS, seeded(7))
    deviation = 2**bits
    values = np.arange(-12 * deviation, 12 * deviation + 1)
    weights = np.exp(-(values**2) / (2 * deviation**2))
    expected = DRAWS * weights / weights.sum()
    told = np.abs(values) <= 3 * deviation
    counts = np.array([np.count_nonzero(drawn == value) for value in values[told]])
    outside = DRAWS - counts.sum()
    observed = np.append(counts, outside)
    wanted = np.append(expected[told], DRAWS - expected[told].sum())
    assert stats.chisquare(observed, wanted).pvalue > 1e-4


@pytest.mark.parametrize("bits", [20, 30, 40])
def test_large_deviations_are_normal(bits: int) -> None:
    drawn = discrete_gaussian(bits, DRAWS, seeded(3)) / 2.0**bits
    assert stats.kstest(drawn, "norm").pvalue > 1e-4
    assert drawn.std() == pytest.approx(1, abs=0.01)
    # Low bits are as random as high ones: no grid of a float shows.
    low = discrete_gaussian(bits, DRAWS, seeded(4)) & 1
    assert low.mean() == pytest.approx(0.5, abs=0.01)


def test_the_same_words_give_the_same_draws_and_others_do_not() -> None:
    first, second = (discrete_gaussian(30, 1000, seeded(5)) for _ in range(2))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, discrete_gaussian(30, 1000, seeded(6)))


def test_the_operating_system_draws_anew_each_time() -> None:
    first, second = (discrete_gaussian(30, 1000, operating_system_words) for _ in range(2))
    assert np.count_nonzero(first == second) < 3


def test_too_many_bits_are_refused() -> None:
    with pytest.raises(ValueError, match="0 to 40 bits"):
        discrete_gaussian(41, 1, operating_system_words)


@pytest.mark.parametrize(("word", "below"), [(0, True), (2**64 - 1, False)])
def test_a_near_tie_is_decided_by_further_bits(word: int, below: bool) -> None:
    """For x = 0 the probability is exp(1/2) / 2, an irrational number."""
    drawn: list[int] = []

    def words(count: int) -> Words:
        drawn.append(count)
        return np.full(count, word, np.uint64)

    with localcontext() as context:
        context.prec = 60
        cell = int(Decimal("0.5").exp() / 2 * 2**64)
    assert module._is_below(cell - 1, 0, 0, 20, words)
    assert not module._is_below(cell + 1, 0, 0, 20, words)
    assert not drawn
    assert module._is_below(cell, 0, 0, 20, words) is below
    assert drawn


def test_every_comparison_that_floats_cannot_decide_is_exact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = discrete_gaussian(8, 300, seeded(9))
    monkeypatch.setattr(module, "_MARGIN", 2.0)  # now decimal arithmetic decides every time
    assert np.array_equal(plain, discrete_gaussian(8, 300, seeded(9)))

"""The epsilon of mixes, against the densities of every possible draw in small cases."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal, getcontext

import numpy as np
import pytest

from edgefed.sharing.label_mixes import MixSettings, Others
from edgefed.sharing.mix_accounting import (
    VACUOUS,
    amplified,
    composed,
    in_words,
    is_vacuous,
    mix_epsilon,
    mix_roles,
    uniform_mix_epsilon,
)
from edgefed.sharing.types import Array

Weights = tuple[float, ...]


def log_density(
    of_label: Sequence[float],
    other: Sequence[float],
    weights: Sequence[Weights],
    scale: float,
    others: str,
    places: Array,
) -> Array:
    """The density of a mix of single numbers: the mean over all targets, partners and weights."""
    records = [*of_label, *other]
    total = np.zeros_like(places)
    count = 0
    for target in range(len(of_label)):
        pool = [
            number
            for number in range(len(records))
            if (number >= len(of_label) if others == "other_classes" else number != target)
        ]
        for partners in itertools.permutations(pool, len(weights[0]) - 1):
            for each in weights:
                chosen = [records[number] for number in (target, *partners)]
                middle = sum(w * x for w, x in zip(each, chosen, strict=True))
                total += np.exp(-np.abs(places - middle) / scale)
                count += 1
    return np.log(total / count)


def corners(width: int, low: float, high: float) -> list[Weights]:
    """Weights at the ends of their ranges."""
    found = []
    for first in (low, high):
        for slot in range(width - 1):
            rest = [0.0] * (width - 1)
            rest[slot] = 1 - first
            found.append((first, *rest))
    return found


def largest_change(
    of_label: list[float],
    other: list[float],
    weights: Sequence[Weights],
    scale: float,
    others: str,
) -> float:
    """The largest change of the log-density when one record is replaced, over all records."""
    places = np.concatenate([np.linspace(-0.5, 1.5, 801), [-40.0, 40.0]])
    before = log_density(of_label, other, weights, scale, others, places)
    largest = 0.0
    for number in range(len(of_label) + len(other)):
        for value in (0.0, 1.0):
            changed = [*of_label, *other]
            changed[number] = value
            split = len(of_label)
            after = log_density(changed[:split], changed[split:], weights, scale, others, places)
            largest = max(largest, float(np.abs(after - before).max()))
    return largest


def cases(seed: int, count: int) -> Iterator[tuple[list[float], list[float], int, float]]:
    """Small data sets, many at the ends of the domain, with a width and a scale."""
    numbers = np.random.default_rng(seed)
    for _ in range(count):
        sizes = numbers.integers(1, 5), numbers.integers(3, 5)
        of_label, other = (
            [float(np.clip(numbers.uniform(-1, 2), 0, 1)) for _ in range(size)] for size in sizes
        )
        yield of_label, other, int(numbers.integers(1, 4)), float(numbers.choice([0.1, 0.3, 1, 3]))


@pytest.mark.parametrize("others", ["other_classes", "any"])
def test_no_record_changes_a_mix_by_more_than_epsilon(others: Others) -> None:
    closest = 0.0
    for of_label, other, width, scale in cases(1, 60):
        settings = MixSettings(width=width, others=others, noise_scale=scale)
        weights = corners(width, 0.5, 0.75) if width > 1 else [(1.0,)]
        bound = mix_epsilon(settings, 1.0, len(of_label), len(other))
        assert bound is not None
        measured = largest_change(of_label, other, weights, scale, others)
        assert measured <= bound * (1 + 1e-9), (of_label, other, width, scale)
        closest = max(closest, measured / bound)
    assert closest > 0.8


def test_the_bound_of_a_first_record_is_reached() -> None:
    settings = MixSettings(width=3, low=0.75, high=0.75, others="other_classes", noise_scale=0.2)
    measured = largest_change([0.0] * 4, [0.0] * 9, [(0.75, 0.125, 0.125)], 0.2, "other_classes")
    assert measured == pytest.approx(amplified(1 / 4, 0.75 / 0.2), rel=1e-6)
    assert measured == pytest.approx(mix_epsilon(settings, 1.0, 4, 9), rel=1e-6)


def test_the_bound_of_another_record_is_reached() -> None:
    settings = MixSettings(width=2, low=0.5, high=0.5, others="other_classes", noise_scale=0.2)
    measured = largest_change([0.0] * 9, [0.0] * 3, [(0.5, 0.5)], 0.2, "other_classes")
    assert measured == pytest.approx(amplified(1 / 3, 0.5 / 0.2), rel=1e-6)
    assert measured == pytest.approx(mix_epsilon(settings, 1.0, 9, 3), rel=1e-6)


@pytest.mark.parametrize(("records", "width"), [(5, 1), (5, 2), (6, 3), (4, 4)])
def test_equal_weights_reach_the_published_bound(records: int, width: int) -> None:
    scale, places = 0.15, np.array([-40.0, -0.5, 0.0, 0.5, 1.0, 40.0])

    def density(values: list[float]) -> Array:
        means = [sum(chosen) / width for chosen in itertools.combinations(values, width)]
        each = [np.exp(-np.abs(places - mean) / scale) for mean in means]
        return np.asarray(np.log(np.mean(each, axis=0)))

    change = np.abs(density([0.0] * records) - density([1.0] + [0.0] * (records - 1))).max()
    assert uniform_mix_epsilon(width, records, 1.0, scale) == pytest.approx(change, rel=1e-9)


def test_roles_are_those_of_the_formulas() -> None:
    settings = MixSettings(width=4, others="other_classes", noise_scale=2.0)
    assert mix_roles(settings, 100.0, 10, 30) is not None
    first, another = mix_roles(settings, 100.0, 10, 30) or ()
    assert (first.probability, first.change) == (0.1, 37.5)
    assert (another.probability, another.change) == (0.1, 25.0)
    epsilon = mix_epsilon(settings, 100.0, 10, 30)
    assert epsilon == first.epsilon == pytest.approx(math.log(0.9 + 0.1 * math.exp(37.5)))
    assert mix_epsilon(settings, 100.0, 10, 30, count=7) == 7 * first.epsilon
    # With few others, they are the ones who risk more.
    first, another = mix_roles(settings, 1.0, 1000, 3) or ()
    assert mix_epsilon(settings, 1.0, 1000, 3) == another.epsilon > first.epsilon
    (alone,) = mix_roles(MixSettings(width=1, noise_scale=2.0), 100.0, 10, 30) or ()
    assert (alone.probability, alone.change) == (0.1, 50.0)


def test_any_others_cost_more_and_converge_to_the_simple_formula() -> None:
    settings = MixSettings(noise_scale=50.0)
    either, part = mix_roles(settings, 100.0, 1000, 9000) or ()
    assert part.probability == 3 / 9999
    assert either.probability == pytest.approx(1 / 1000 + 3 / 10_000, rel=0.005)
    assert either.change == 1.5
    few, _ = mix_roles(settings, 100.0, 4, 9000) or ()
    assert few.probability == 1
    assert len(mix_roles(settings, 100.0, 10, 0) or ()) == 1


@pytest.mark.parametrize("probability", [1e-9, 1e-4, 0.1, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("change", [1e-12, 1e-5, 0.3, 0.999, 1.0, 5.0, 700.0, 36_720.0, 1e5])
def test_epsilon_is_exact_for_any_change(probability: float, change: float) -> None:
    getcontext().prec = 60
    q, c = Decimal(probability), Decimal(change)
    expected = float((1 - q + q * c.exp()).ln())
    assert amplified(probability, change) == pytest.approx(expected, rel=1e-12)


def test_epsilon_grows_with_the_change_across_the_switch_of_formulas() -> None:
    values = [amplified(0.3, change) for change in np.linspace(0.9, 1.1, 201)]
    assert all(a < b for a, b in itertools.pairwise(values))
    assert amplified(0.0, 5.0) == amplified(0.5, 0.0) == 0.0


def test_releases_without_a_finite_epsilon_have_none() -> None:
    assert mix_epsilon(MixSettings(noise_scale=0), 1.0, 10, 10) is None
    assert mix_epsilon(MixSettings(others="global"), 1.0, 10, 10) is None
    assert mix_epsilon(MixSettings(), 1.0, 0, 10) is None
    assert mix_epsilon(MixSettings(), 1.0, 1, 2) is None
    assert mix_epsilon(MixSettings(others="other_classes"), 1.0, 10, 2) is None
    assert uniform_mix_epsilon(4, 3, 1.0, 1.0) is None
    assert uniform_mix_epsilon(2, 3, 1.0, 0.0) is None


def test_releases_add_up_unless_one_has_no_epsilon() -> None:
    assert composed([]) == 0
    assert composed([0.1] * 10) == 1.0
    assert composed([0.5, None, 0.5]) is None


def test_a_vacuous_epsilon_is_said_to_be_vacuous() -> None:
    image = mix_epsilon(MixSettings(), 3072.0, 5000, 45_000)
    assert image is not None and 36_000 < image < 36_720
    assert is_vacuous(image) and is_vacuous(None) and is_vacuous(VACUOUS)
    assert not is_vacuous(1.0)
    assert "vacuous" in in_words(image)
    assert "no formal guarantee" in in_words(None)
    assert in_words(math.log(3)).endswith("in more than 75.0% of cases")

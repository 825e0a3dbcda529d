"""Hidden units are matched by the weights between them too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from edgefed.errors import DataError
from edgefed.learn.base.types import Array
from edgefed.learn.matching.layer import Matched, match_layer
from edgefed.learn.matching.recurrence import Pairs, refined_by_recurrence
from edgefed.learn.matching.settings import MatchSettings
from tests.learn.matching_problems import naive_objective, pairs, unrelated

HOW = MatchSettings(new_penalty="none")


def layers(seed: int, noise: float) -> tuple[list[Array], list[Array], list[Array]]:
    """Return permuted copies with noisy inputs' weights and less noisy recurrent weights."""
    rng = np.random.default_rng(seed)
    own, between = rng.standard_normal((20, 12)), rng.standard_normal((4, 20, 20))
    orders = [rng.permutation(20) for _ in range(4)]
    inputs = [own[each] + noise * rng.standard_normal(own.shape) for each in orders]
    recurrent = [
        between[:, each[:, None], each] + 0.3 * rng.standard_normal(between.shape)
        for each in orders
    ]
    return inputs, recurrent, orders


def refined(found: Matched, inputs: list[Array], recurrent: list[Array]) -> Matched:
    rng = np.random.default_rng(2)
    return refined_by_recurrence(found, inputs, recurrent, settings=HOW, rng=rng)


def test_recurrent_weights_put_right_what_noisy_inputs_got_wrong() -> None:
    inputs, recurrent, orders = layers(5, noise=0.8)
    found = match_layer(inputs, settings=HOW, rng=np.random.default_rng(1))
    wrong = int((pairs(found.assignments) != pairs(orders)).sum())
    after = refined(found, inputs, recurrent)
    assert wrong > 0
    assert np.array_equal(pairs(after.assignments), pairs(orders))
    assert after.counts.tolist() == [4] * 20
    given = replace(found, sigma=0.5, sigma0=0.25)
    assert (refined(given, inputs, recurrent).sigma, after.sigma) == (0.5, found.sigma)


def test_a_right_matching_is_left_as_it_is() -> None:
    inputs, recurrent, orders = layers(6, noise=0.2)
    found = match_layer(inputs, settings=HOW, rng=np.random.default_rng(1))
    assert np.array_equal(pairs(found.assignments), pairs(orders))
    after = refined(found, inputs, recurrent)
    assert np.array_equal(pairs(after.assignments), pairs(orders))
    np.testing.assert_array_equal(after.atoms, found.atoms)
    assert after.sweeps == 1


@pytest.mark.parametrize("seed", range(6))
def test_the_joint_objective_never_falls(seed: int) -> None:
    inputs, recurrent = unrelated(4, 9, 5, seed=seed), unrelated(4, 4 * 9, 9, seed=seed + 50)
    gates = [each.reshape(4, 9, 9) for each in recurrent]
    found = match_layer(inputs, settings=HOW, rng=np.random.default_rng(1))
    values = [found.objective + recurrent_term(found, gates)]
    for sweeps in (1, 2, 3):
        how = replace(HOW, sweeps=sweeps)
        after = refined_by_recurrence(
            found, inputs, gates, settings=how, rng=np.random.default_rng(2)
        )
        for each in after.assignments:
            assert len(set(each.tolist())) == 9
        own = naive_objective(
            inputs, after.assignments, sigma=found.sigma, sigma0=found.sigma0, gamma=HOW.gamma
        )
        assert after.objective == pytest.approx(own + recurrent_term(after, gates))
        values.append(after.objective)
    assert values == sorted(values)
    assert values[-1] > values[0]


def recurrent_term(found: Matched, recurrent: Sequence[Array]) -> float:
    """Return ``sum T^2 / Lambda`` over pairs of atoms, by its definition."""
    size, gates = len(found.atoms), len(recurrent[0])
    sums, held = np.zeros((gates, size, size)), np.zeros((size, size))
    for own, assignment in zip(recurrent, found.assignments, strict=True):
        for row, one in enumerate(assignment):
            for column, other in enumerate(assignment):
                sums[:, one, other] += own[:, row, column] / found.sigma
                held[one, other] += 1 / found.sigma
    return float((sums**2 / (1 / found.sigma0 + held)).sum())


def test_the_reward_of_an_assignment_is_what_it_adds_to_the_objective() -> None:
    rng = np.random.default_rng(8)
    weights = [rng.standard_normal((2, 5, 5)) for _ in range(3)]
    all_pairs = Pairs(2, 0.7)
    for own in weights[:2]:
        all_pairs.add(own, 1.3, rng.permutation(6)[:5])
    all_pairs.enlarge(8)
    before = all_pairs.data_term()
    for assignment in (np.array([0, 5, 2, 1, 7]), np.array([6, 3, 4, 0, 1])):
        reward = all_pairs.total(weights[2], 1.3, assignment)
        all_pairs.add(weights[2], 1.3, assignment)
        gained = all_pairs.data_term() - before
        all_pairs.remove(weights[2], 1.3, assignment)
        assert gained == pytest.approx(reward + 1.3 * float((weights[2] ** 2).sum()))
    # Linearised where it is, the reward counts each pair twice, and itself once more.
    linear = all_pairs.linearised(weights[2], 1.3, assignment)
    at = linear[np.arange(5), assignment].sum()
    assert at == pytest.approx(2 * all_pairs.total(weights[2], 1.3, assignment))


def test_growth_stays_within_the_bound() -> None:
    inputs, recurrent, _ = layers(7, noise=2.0)
    how = MatchSettings(0.05, 1.0, new_penalty="none", most_atoms=22)
    found = match_layer(inputs, settings=how, rng=np.random.default_rng(1))
    noisy = [5 * each for each in recurrent]
    after = refined_by_recurrence(found, inputs, noisy, settings=how, rng=np.random.default_rng(2))
    assert len(found.atoms) == 22
    assert len(after.atoms) <= 22


def test_recurrent_weights_that_do_not_fit_are_refused() -> None:
    inputs, recurrent, _ = layers(5, noise=0.3)
    found = match_layer(inputs, settings=HOW, rng=np.random.default_rng(1))
    with pytest.raises(DataError) as refused:
        refined(found, inputs, [each[:, 1:] for each in recurrent])
    assert refused.value.code == "matching.shape"
    recurrent[3][0, 0, 0] = np.nan
    with pytest.raises(DataError) as refused:
        refined(found, inputs, recurrent)
    assert refused.value.code == "matching.values"


def test_devices_may_be_more_precise() -> None:
    inputs, recurrent, _ = layers(7, noise=0.5)
    found = match_layer(inputs, settings=HOW, rng=np.random.default_rng(1))
    by_variance = refined(replace(found, sigma=found.sigma / 2), inputs, recurrent)
    by_precision = refined_by_recurrence(
        found,
        inputs,
        recurrent,
        settings=HOW,
        rng=np.random.default_rng(2),
        precisions=[2.0] * len(inputs),
    )
    assert by_precision.objective == pytest.approx(by_variance.objective)
    assert by_precision.objective != pytest.approx(refined(found, inputs, recurrent).objective)

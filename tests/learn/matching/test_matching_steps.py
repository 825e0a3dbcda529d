"""Rewards, atoms, assignment and objective of a matching agree with their definitions."""

from __future__ import annotations

from itertools import permutations
from math import log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.learn.base.types import Array
from edgefed.learn.matching import assignment as solver
from edgefed.learn.matching.assignment import best_assignment
from edgefed.learn.matching.atoms import Atoms, Units
from edgefed.learn.matching.problem import objective
from edgefed.learn.matching.settings import MatchSettings
from edgefed.learn.matching.sweeps import Prior, Search, new_rewards, popularity, reward_matrix
from tests.learn.matching_problems import naive_reward, unrelated

SEEDS = st.integers(0, 2**16)


def precisions(rng: np.random.Generator, numbers: int, columns: bool) -> Array:
    drawn: Array = rng.uniform(0.3, 3.0, numbers if columns else 1)
    return drawn


@pytest.mark.parametrize("columns", [False, True])
@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, units=st.integers(1, 5), numbers=st.integers(1, 6))
def test_rewards_are_those_of_the_definition(
    columns: bool, seed: int, units: int, numbers: int
) -> None:
    rng = np.random.default_rng(seed)
    prior = precisions(rng, numbers, columns)
    atoms = Atoms(numbers, prior, 2)
    for _ in range(3):
        others = Units(rng.standard_normal((4, numbers)), precisions(rng, numbers, columns))
        atoms.add(others, rng.permutation(6)[:4])
    held = np.flatnonzero(atoms.counts)
    own = Units(rng.standard_normal((units, numbers)), precisions(rng, numbers, columns))
    mean = rng.standard_normal(numbers)

    rewards = reward_matrix(own, atoms, np.zeros(atoms.size))
    new = new_rewards(own, prior, 0.25)

    # By the definition, with values that are not centred, and the constant that is left out.
    def full(row: Array) -> Array:
        return np.broadcast_to(row, numbers)

    for unit, value in enumerate(own.values + mean):
        constant = float((full(own.precision) * value**2).sum())
        for atom in held:
            precision = full(atoms.precisions[atom])
            naive = naive_reward(
                value, full(own.precision), atoms.sums[atom] + precision * mean, precision
            )
            assert rewards[unit, atom] + constant == pytest.approx(naive, rel=1e-10, abs=1e-9)
        naive = naive_reward(value, full(own.precision), full(prior) * mean, full(prior))
        assert new[unit] + constant == pytest.approx(naive + 0.25, rel=1e-10, abs=1e-9)


def test_rewards_of_alike_units_keep_their_digits_far_from_the_mean() -> None:
    numbers = 50
    atoms = Atoms(numbers, np.array([1e-8]), 1)
    values = np.full((1, numbers), 1e3)
    atoms.add(Units(values, np.ones(1)), np.array([0]))
    for difference in (0.0, 1e-3, 1.0):
        (reward,) = reward_matrix(Units(values + difference, np.ones(1)), atoms, np.zeros(1))
        assert reward[0] == pytest.approx(-numbers * difference**2 / 2, rel=1e-3, abs=1e-4)


def test_popularity_is_the_log_odds_of_an_atom_and_finite_where_all_hold_it() -> None:
    held = np.arange(1, 16)
    np.testing.assert_allclose(popularity(held, 16, 2.0, None), 2 * np.log(held / (16 - held)))
    capped = popularity(held, 16, 1.0, 10)
    np.testing.assert_allclose(capped[:10], np.log(held[:10] / (16 - held[:10])))
    assert (capped[10:] == capped[9]).all()
    assert popularity(np.array([16]), 16, 2.0, None) == popularity(np.array([15]), 16, 2.0, None)
    assert np.isfinite(popularity(np.array([1, 2]), 1, 2.0, None)).all()
    assert np.isfinite(popularity(np.array([3]), 3, 2.0, 10)).all()


@settings(max_examples=40, deadline=None)
@given(
    seed=SEEDS,
    units=st.integers(1, 4),
    atoms=st.integers(0, 4),
    room=st.integers(0, 4),
    poisson=st.booleans(),
    worth=st.sampled_from([-6.0, -1.0, 0.0, 1.0, 6.0]),
)
def test_no_assignment_is_better_than_the_one_found(
    seed: int, units: int, atoms: int, room: int, poisson: bool, worth: float
) -> None:
    room = max(room, units - atoms)
    rng = np.random.default_rng(seed)
    existing = rng.standard_normal((units, atoms))
    new = worth + rng.standard_normal(units)

    def value(assignment: Array) -> float:
        fresh = np.flatnonzero(assignment >= atoms)
        known = np.flatnonzero(assignment < atoms)
        penalty = sum(2 * log(k) for k in range(1, len(fresh) + 1)) if poisson else 0.0
        return float(existing[known, assignment[known]].sum() + new[fresh].sum() - penalty)

    found = best_assignment(existing, new, room, poisson=poisson)
    assert len(set(found.tolist())) == units
    fresh = found[found >= atoms]
    assert fresh.tolist() == list(range(atoms, atoms + len(fresh)))
    assert len(fresh) <= room
    # A device has at most 4 units here: every assignment, by columns of which some are new.
    best = max(
        value(np.array(each)) for each in permutations(range(atoms + min(room, units)), units)
    )
    assert value(found) == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("poisson", [False, True])
@pytest.mark.parametrize("room", [9, 25, 60])
def test_many_new_atoms_are_found_by_their_price(
    monkeypatch: pytest.MonkeyPatch, poisson: bool, room: int
) -> None:
    rng = np.random.default_rng(room)
    existing, new = rng.standard_normal((60, 51)), 4.0 + rng.standard_normal(60)
    monkeypatch.setattr(solver, "FEW", 1000)
    by_columns = best_assignment(existing, new, room, poisson=poisson)
    monkeypatch.setattr(solver, "FEW", 0)
    monkeypatch.delattr(solver, "_with_columns")
    by_price = best_assignment(existing, new, room, poisson=poisson)
    assert by_price.tolist() == by_columns.tolist()
    assert 9 <= int((by_price >= 51).sum()) <= room


def test_units_that_tie_for_a_new_atom_are_still_assigned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(solver, "FEW", 0)
    existing, new = np.zeros((6, 6)), np.ones(6)
    found = best_assignment(existing, new, 3, poisson=False)
    assert len(set(found.tolist())) == 6
    assert int((found >= 6).sum()) == 3


@pytest.mark.parametrize("columns", [False, True])
def test_sums_that_are_kept_up_to_date_equal_those_computed_anew(columns: bool) -> None:
    rng = np.random.default_rng(4)
    prior = precisions(rng, 7, columns)
    devices = [Units(each, precisions(rng, 7, columns)) for each in unrelated(5, 9, 7)]
    search = Search(devices, Prior(prior, 5, None), MatchSettings(1.0, 1.0, 3.0))
    search.run(rng)
    for device in rng.integers(0, 5, 30):
        search.remove(device)
        held = np.unique(np.concatenate([each[each >= 0] for each in search.assignments]))
        assert held.tolist() == list(range(search.atoms.size))
        search.add(device, search.best(device))
    anew = Atoms(7, prior, 1)
    for units, assignment in zip(devices, search.assignments, strict=True):
        anew.add(units, assignment)
    assert anew.counts.tolist() == search.atoms.counts.tolist()
    np.testing.assert_allclose(search.atoms.sums, anew.sums, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(search.atoms.precisions, anew.precisions, rtol=1e-12)
    assert len(np.unique(anew.counts)) > 1


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, gamma=st.sampled_from([0.1, 1.0, 20.0]), numbers=st.integers(1, 8))
def test_the_exact_objective_never_decreases(seed: int, gamma: float, numbers: int) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 9, 4)
    devices = [Units(rng.standard_normal((count, numbers)), np.ones(1)) for count in counts]
    how = MatchSettings(1.0, 1.0, gamma, sweeps=0, new_penalty="none")
    search = Search(devices, Prior(np.ones(1), 4, None), how)
    search.run(rng)
    value = objective(search.atoms, np.zeros(1), 4, gamma)
    for device in rng.integers(0, 4, 16):
        search.remove(device)
        search.add(device, search.best(device))
        after = objective(search.atoms, np.zeros(1), 4, gamma)
        assert after >= value - 1e-9 * abs(value)
        value = after


def test_the_reward_of_an_assignment_is_what_it_adds_to_the_objective() -> None:
    rng = np.random.default_rng(7)
    devices = [Units(each, np.ones(1)) for each in unrelated(4, 6, 3)]
    how = MatchSettings(1.0, 1.0, 2.5, new_penalty="none")
    search = Search(devices, Prior(np.ones(1), 4, None), how)
    search.run(rng)
    search.remove(2)
    before = objective(search.atoms, np.zeros(1), 4, 2.5)
    rewards = search.rewards(2)
    constant = float((devices[2].values ** 2).sum())
    size = search.atoms.size
    for assignment in (np.arange(6), np.array([size, 1, 0, size + 1, 2, 3])):
        search.add(2, assignment)
        gained = objective(search.atoms, np.zeros(1), 4, 2.5) - before
        assert gained == pytest.approx(rewards.total(assignment) + constant, rel=1e-10)
        search.atoms.remove(devices[2], assignment)

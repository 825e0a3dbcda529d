"""A layer's units are matched across devices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.errors import DataError, UsageError
from edgefed.learn.base.types import Array
from edgefed.learn.matching.layer import Matched, match_layer
from edgefed.learn.matching.problem import prior_term
from edgefed.learn.matching.settings import MatchSettings
from tests.learn.matching_problems import naive_objective, pairs, planted, unrelated

AUTO = MatchSettings()
EXACT = MatchSettings(sigma=0.5, sigma0=1.5, gamma=2.0, new_penalty="none")


def matched(weights: list[Array], how: MatchSettings = AUTO, seed: int = 1, **more: Any) -> Matched:
    return match_layer(weights, settings=how, rng=np.random.default_rng(seed), **more)


@pytest.mark.parametrize("how", [AUTO, EXACT, MatchSettings.reference()])
@pytest.mark.parametrize(("devices", "noise"), [(2, 0.2), (5, 0.3)])
def test_planted_permutations_are_recovered(how: MatchSettings, devices: int, noise: float) -> None:
    weights, orders = planted(devices, 24, 60, noise=noise)
    found = matched(weights, how)
    assert np.array_equal(pairs(found.assignments), pairs(orders))
    assert found.counts.tolist() == [devices] * 24
    assert found.sweeps == 1


def test_the_reference_settings_give_what_the_published_implementation_gives() -> None:
    how = MatchSettings.reference()
    found = matched(planted(16, 64, 100)[0], how)
    data = found.objective - prior_term(found.counts, 16, how.gamma)
    assert data == pytest.approx(96_363.84, abs=0.005)
    # Of weights with nothing in common: the cap on growth, and how many devices hold an atom.
    random = matched(unrelated(16, 64, 100), replace(how, sweeps=1))
    assert np.bincount(random.counts).tolist() == [0, 376, 324]


def test_float32_weights_are_matched_as_float64() -> None:
    weights = [each.astype(np.float32) for each in unrelated(5, 40, 30)]
    one, other = matched(weights), matched([each.astype(np.float64) for each in weights])
    assert one.atoms.tobytes() == other.atoms.tobytes()
    assert one.atoms.dtype == np.float64


def test_units_that_some_devices_lack_become_atoms_of_those_that_have_them() -> None:
    rng = np.random.default_rng(3)
    atoms = rng.standard_normal((40, 200))
    orders = [rng.permutation(40)[:count] for count in (28, 24, 20, 26)]
    weights = [atoms[each] + 0.3 * rng.standard_normal((len(each), 200)) for each in orders]
    found = matched(weights)
    assert np.array_equal(pairs(found.assignments), pairs(orders))
    held = np.bincount(np.concatenate(orders), minlength=40)
    assert sorted(found.counts.tolist()) == sorted(held[held > 0].tolist())


def test_one_device_keeps_its_units_in_order() -> None:
    (weights,) = unrelated(1, 7, 5)
    for average, factor in (("matched", 1.0), ("all", 1.0), ("map", 1.5 / 2.0)):
        how = MatchSettings(sigma=0.5, sigma0=1.5, average=average)  # type: ignore[arg-type]
        found = matched([weights], how)
        assert found.assignments[0].tolist() == list(range(7))
        np.testing.assert_allclose(found.atoms, factor * weights, rtol=1e-12)
    assert matched([weights]).counts.tolist() == [1] * 7


@pytest.mark.parametrize("how", [AUTO, MatchSettings(new_penalty="none")])
def test_permuted_copies_are_matched_exactly(how: MatchSettings) -> None:
    (weights,) = unrelated(1, 30, 9)
    orders = [np.random.default_rng(seed).permutation(30) for seed in range(4)]
    found = matched([weights[order] for order in orders], how)
    assert np.array_equal(pairs(found.assignments), pairs(orders))
    np.testing.assert_array_equal(found.atoms[found.assignments[2]], weights[orders[2]])


@settings(max_examples=20, deadline=None)
@given(
    counts=st.lists(st.integers(0, 7), min_size=1, max_size=4),
    numbers=st.integers(1, 5),
    seed=st.integers(0, 2**16),
    penalty=st.sampled_from(["none", "poisson"]),
    gamma=st.sampled_from([0.01, 1.0, 50.0]),
    slack=st.none() | st.integers(0, 3),
)
def test_each_unit_has_an_atom_of_its_own(
    counts: list[int], numbers: int, seed: int, penalty: str, gamma: float, slack: int | None
) -> None:
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal((count, numbers)) for count in counts]
    most = None if slack is None else max(1, *counts, max(counts) + slack)
    how = MatchSettings(gamma=gamma, new_penalty=penalty, most_atoms=most)  # type: ignore[arg-type]
    found = matched(weights, how, seed)
    for units, assignment in zip(weights, found.assignments, strict=True):
        assert assignment.shape == (len(units),)
        assert len(set(assignment.tolist())) == len(units)
    held = np.bincount(np.concatenate(found.assignments), minlength=len(found.atoms))
    assert held.tolist() == found.counts.tolist()
    assert held.min(initial=1) == 1 or held.all()
    assert most is None or len(found.atoms) <= most


def test_a_smaller_mass_means_fewer_atoms_down_to_the_largest_device() -> None:
    weights = unrelated(5, 20, 6)
    weights[2] = weights[2][:12]
    atoms = [
        len(matched(weights, MatchSettings(sigma=1.0, sigma0=1.0, gamma=gamma)).atoms)
        for gamma in (1e-300, 1e-3, 7.0, 1e3)
    ]
    assert atoms[0] == 20
    assert atoms == sorted(atoms)
    assert atoms[-1] > atoms[0]


@pytest.mark.parametrize("mean", [0.0, 0.4])
def test_objective_and_atoms_are_those_of_the_definition(mean: float) -> None:
    weights = unrelated(4, 9, 5)
    found = matched(weights, EXACT, mean=mean)
    assert found.objective == pytest.approx(
        naive_objective(weights, found.assignments, sigma=0.5, sigma0=1.5, gamma=2.0, mean=mean),
        rel=1e-12,
    )
    assert found.counts.max() > 1
    for average in ("map", "matched", "all"):
        how = MatchSettings(0.5, 1.5, 2.0, new_penalty="none", average=average)
        atoms = matched(weights, how, mean=mean).atoms
        for atom, held in enumerate(found.counts):
            units = np.concatenate(
                [own[each == atom] for own, each in zip(weights, found.assignments, strict=True)]
            )
            expected = {
                "map": (mean / 1.5 + units.sum(axis=0) / 0.5) / (1 / 1.5 + held / 0.5),
                "matched": units.mean(axis=0),
                "all": mean + (units - mean).sum(axis=0) / 4,
            }[average]
            np.testing.assert_allclose(atoms[atom], expected, rtol=1e-12)


def test_equal_arguments_give_equal_bits_and_the_generator_decides_the_order() -> None:
    weights = unrelated(6, 16, 4)
    one, again = matched(weights), matched(weights)
    assert one.atoms.tobytes() == again.atoms.tobytes()
    assert [each.tobytes() for each in one.assignments] == [
        each.tobytes() for each in again.assignments
    ]
    others = [matched(weights, seed=seed).objective for seed in range(2, 8)]
    assert any(other != one.objective for other in others)


def test_the_atoms_of_a_bound_are_enough_for_every_device() -> None:
    weights = [*unrelated(3, 10, 8), *unrelated(1, 12, 8, seed=9)]
    free = matched(weights, MatchSettings(sigma=0.01, sigma0=1.0))
    assert len(free.atoms) > 14
    assert len(matched(weights, MatchSettings(0.01, 1.0, most_atoms=14)).atoms) == 14
    assert len(matched(weights, MatchSettings(0.01, 1.0), grow=False).atoms) == 12
    with pytest.raises(DataError, match="12 units") as refused:
        matched(weights, MatchSettings(most_atoms=11))
    assert refused.value.code == "matching.bound"


def test_the_reference_settings_cap_growth_at_one_atom_a_device_beyond_the_cap() -> None:
    weights = unrelated(4, 8, 50)
    how = MatchSettings(sigma=0.01, sigma0=1.0, growth_cap=10, sweeps=0)
    free = matched(weights, MatchSettings(sigma=0.01, sigma0=1.0))
    # Atoms of one device get new numbers when it is matched again, which is no change.
    assert (len(free.atoms), free.sweeps) == (32, 1)
    assert len(matched(weights, how).atoms) == 8 + 2 + 1 + 1
    weights[1:] = [np.concatenate([each, each + 1.0]) for each in weights[1:]]
    assert len(matched(weights, replace(how, growth_cap=4)).atoms) == 16 + 1 + 1 + 1


def test_units_of_different_classes_share_no_atom() -> None:
    weights, orders = planted(3, 12, 40)
    classes = [order // 4 for order in orders]
    found = matched(weights, classes=classes, grow=False)
    assert np.array_equal(pairs(found.assignments), pairs(orders))
    for assignment, own in zip(found.assignments, classes, strict=True):
        assert (assignment // 4).tolist() == own.tolist()
    # Classes that contradict the weights win.
    wrong = [np.arange(12) // 4 for _ in orders]
    forced = matched(weights, classes=wrong, grow=False)
    assert [(each // 4).tolist() for each in forced.assignments] == [wrong[0].tolist()] * 3
    assert len(forced.atoms) == 12
    free = matched(weights, classes=wrong)
    assert len(free.atoms) > 12
    shared = pairs(free.assignments) & ~pairs(wrong)
    assert not shared.any()


def test_a_bound_is_shared_among_classes() -> None:
    weights = unrelated(4, 9, 30)
    classes = [np.array([0] * 6 + [1] * 3)] * 4
    how = MatchSettings(sigma=0.01, sigma0=1.0, most_atoms=15)
    found = matched(weights, how, classes=classes)
    first = np.concatenate([each[:6] for each in found.assignments])
    second = np.concatenate([each[6:] for each in found.assignments])
    assert (first.max() + 1, second.min(), second.max() + 1) == (10, 10, 15)
    with pytest.raises(DataError, match="9 units"):
        matched(weights, MatchSettings(most_atoms=8), classes=classes)


def test_columns_that_a_device_does_not_know_neither_match_nor_average() -> None:
    weights, orders = planted(3, 10, 40)
    weights[1][:, 20:] = 50.0 * np.random.default_rng(5).standard_normal((10, 20))
    known = np.ones(40)
    known[20:] = 0.0
    found = matched(weights, precisions=[1.0, known, 1.0])
    assert np.array_equal(pairs(found.assignments), pairs(orders))
    others = (
        weights[0][np.argsort(found.assignments[0])] + weights[2][np.argsort(found.assignments[2])]
    ) / 2
    np.testing.assert_allclose(found.atoms[:, 20:], others[:, 20:], rtol=1e-12)
    assert not np.allclose(found.atoms[:, :20], others[:, :20])


def test_a_device_of_twice_the_precision_counts_twice() -> None:
    weights, _ = planted(2, 6, 30)
    found = matched(weights, precisions=[2.0, 1.0])
    own, other = (w[np.argsort(a)] for w, a in zip(weights, found.assignments, strict=True))
    np.testing.assert_allclose(found.atoms, (2 * own + other) / 3, rtol=1e-12)
    by_column = matched(weights, precisions=[np.full(30, 2.0), np.ones(30)])
    assert np.array_equal(pairs(by_column.assignments), pairs(found.assignments))
    np.testing.assert_allclose(by_column.atoms, found.atoms, rtol=1e-12)
    assert by_column.objective == pytest.approx(found.objective, rel=1e-9)


def test_more_devices_may_count_than_are_matched() -> None:
    weights = unrelated(3, 8, 4)
    few, many = matched(weights, EXACT), matched(weights, EXACT, devices=50)
    assert few.objective != many.objective
    with pytest.raises(DataError) as refused:
        matched(weights, devices=2)
    assert refused.value.code == "matching.devices"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda weights: weights[1].__setitem__((0, 0), np.nan), "matching.values"),
        (lambda weights: weights[1].__setitem__((2, 1), -np.inf), "matching.values"),
        (lambda weights: weights.__setitem__(1, np.zeros((4, 7))), "matching.shape"),
        (lambda weights: weights.__setitem__(0, np.zeros(4)), "matching.shape"),
        (lambda weights: weights.clear(), "matching.devices"),
    ],
)
def test_weights_that_cannot_be_matched_are_refused(change: object, code: str) -> None:
    weights = unrelated(3, 4, 6)
    change(weights)  # type: ignore[operator]
    with pytest.raises(DataError) as refused:
        matched(weights)
    assert refused.value.code == code


@pytest.mark.parametrize(
    "more",
    [
        {"precisions": [1.0, 1.0]},
        {"precisions": [1.0, 0.0, 1.0]},
        {"precisions": [1.0, np.ones(5), 1.0]},
        {"precisions": [1.0, np.nan, 1.0]},
        {"mean": np.ones(4)},
        {"mean": np.inf},
        {"classes": [np.zeros(4)] * 2},
        {"classes": [np.zeros(3)] * 3},
    ],
)
def test_arguments_that_do_not_fit_the_weights_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(DataError) as refused:
        matched(unrelated(3, 4, 6), **more)
    assert refused.value.code == "matching.shape"


@pytest.mark.parametrize(
    "wrong",
    [
        {"sigma": 0.0},
        {"sigma0": float("nan")},
        {"gamma": -1.0},
        {"gamma": "auto"},
        {"sweeps": -1},
        {"most_atoms": 0},
        {"new_penalty": "some"},
        {"average": "median"},
    ],
)
def test_settings_that_no_matching_can_use_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError) as refused:
        MatchSettings(**wrong)  # type: ignore[arg-type]
    assert refused.value.code == "matching.settings"


def test_no_units_match_to_no_atoms() -> None:
    found = matched([np.zeros((0, 3)), np.zeros((0, 3))])
    assert found.atoms.shape == (0, 3)
    assert [len(each) for each in found.assignments] == [0, 0]

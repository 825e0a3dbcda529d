"""The variances of a matching come from the weights, whatever their scale."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import betaln
from scipy.stats import multivariate_normal

from edgefed.learn.base.types import Array
from edgefed.learn.matching import variances
from edgefed.learn.matching.layer import Matched, match_layer
from edgefed.learn.matching.problem import stated
from edgefed.learn.matching.settings import MatchSettings
from edgefed.learn.matching.variances import bounded, mean_square
from tests.learn.matching_problems import misplaced, planted, sharing, unrelated

AUTO = MatchSettings()


def matched(weights: list[Array], how: MatchSettings = AUTO) -> Matched:
    return match_layer(weights, settings=how, rng=np.random.default_rng(1))


def same(one: Matched, other: Matched) -> bool:
    return all(
        np.array_equal(*each) for each in zip(one.assignments, other.assignments, strict=True)
    )


@pytest.fixture(scope="module")
def layer() -> list[Array]:
    return planted(16, 64, 100)[0]


def test_small_weights_are_matched_as_large_ones(layer: list[Array]) -> None:
    small = [0.05 * each for each in layer]
    assert same(matched(layer), matched(small))
    assert len(matched(small).atoms) == 64


def test_with_the_variances_of_the_reference_small_weights_give_atoms_of_one_device(
    layer: list[Array],
) -> None:
    found = matched([0.05 * each for each in layer], MatchSettings.reference())
    assert np.bincount(found.counts).tolist() == [0, 16, *[0] * 14, 63]
    assert len(matched(layer, MatchSettings.reference()).atoms) == 64


@pytest.mark.parametrize("power", [-40, -3, 1, 60])
def test_a_power_of_two_changes_no_bit(power: int) -> None:
    weights = unrelated(4, 20, 7)
    one, other = matched(weights), matched([2.0**power * each for each in weights])
    assert same(one, other)
    assert (2.0**power * one.atoms).tobytes() == other.atoms.tobytes()
    assert other.sigma == 4.0**power * one.sigma
    assert other.objective == one.objective


def test_noise_is_estimated() -> None:
    for noise in (0.1, 0.3, 0.8):
        weights, _ = planted(5, 40, 300, noise=noise)
        assert matched(weights).sigma == pytest.approx(noise**2, rel=0.05)


def test_the_estimate_decides_as_the_marginal_likelihood_does() -> None:
    weights, _ = planted(4, 40, 400, noise=1.2)
    found = matched(weights)
    total = np.mean([(each**2).mean() for each in weights])
    own = found.sigma / total
    # Per number: the squared distance at which a unit of mean length leaves a well known atom.
    bound = found.sigma * total / (found.sigma + found.sigma0)
    assert bound / found.sigma + np.log(found.sigma) == pytest.approx(1 + np.log(total))
    assert own < bound / total < 1


def test_a_unit_that_moved_further_than_others_keeps_its_atom() -> None:
    weights, _ = planted(6, 40, 200, noise=0.05)
    weights[3][7] += 0.7 * np.random.default_rng(5).standard_normal(200)
    found = matched(weights)
    assert len(found.atoms) == 40
    assert found.sigma0 == pytest.approx(found.sigma / 4)


@pytest.mark.parametrize(("devices", "units", "numbers"), [(16, 64, 100), (4, 50, 9), (2, 30, 30)])
def test_weights_with_nothing_in_common_hardly_grow(devices: int, units: int, numbers: int) -> None:
    found = matched(unrelated(devices, units, numbers))
    assert units <= len(found.atoms) <= 1.1 * units


@pytest.mark.parametrize("devices", [1, 3])
def test_equal_devices_and_zeros_have_positive_variances(devices: int) -> None:
    (weights,) = unrelated(1, 6, 4)
    for each in (weights, np.zeros((6, 4)), np.full((6, 4), 1e-30)):
        found = matched([each] * devices)
        assert 0 < found.sigma0 < found.sigma
        assert found.sigma < 1e-3 * (each**2).mean() or not each.any()
        np.testing.assert_allclose(found.atoms, each, rtol=1e-12)


@pytest.mark.parametrize("noise", [0.2, 0.7])
@pytest.mark.parametrize("overlap", [0.1, 0.125, 0.25, 0.5, 1.0])
def test_devices_that_share_few_units_are_matched_too(overlap: float, noise: float) -> None:
    """Nearly all pairs of two devices are of unrelated units, so their mean distance says little.

    The problem of 10 of 80 atoms ended in 10 atoms, with hardly any unit in its place.
    """
    for seed in range(3):
        weights, orders = sharing(8, 10, 200, overlap, noise=noise, seed=seed)
        found = matched(weights)
        if wrong := misplaced(found.assignments, orders):
            known = matched(weights, MatchSettings(sigma=noise**2))
            assert overlap == 0.25
            assert wrong <= misplaced(known.assignments, orders), "the true variance is no better"
        assert found.sigma == pytest.approx(noise**2, rel=0.5 if overlap == 0.25 else 0.1)
        assert found.apart < 0.5


def test_the_second_search_starts_where_some_units_are_alike() -> None:
    weights, orders = sharing(16, 40, 50, 0.1)
    found = matched(weights)
    assert len(found.atoms) == len(np.unique(orders))
    assert misplaced(found.assignments, orders) == 0


def test_devices_with_nothing_in_common_are_matched_and_said_to_be_apart() -> None:
    for seed in range(3):
        weights, _ = sharing(8, 10, 200, 0.0, seed=seed)
        found = matched(weights)
        assert len(found.atoms) == 10, "without evidence the layer does not grow"
        assert found.apart > 0.8


def test_a_second_search_is_judged_by_the_full_likelihood() -> None:
    """With the variances of the problem, against the densities of SciPy."""
    weights, _ = sharing(3, 4, 6, 0.5, noise=0.4, seed=2)
    assignments = [np.array([0, 1, 2, 3]), np.array([1, 0, 4, 3]), np.array([2, 5, 6, 0])]
    problem = stated(weights, MatchSettings(gamma=0.7), None, 0.0, None)
    values = [each.values for each in problem.units]
    sigma = bounded(values, problem.relative, assignments)
    sigma0 = mean_square(values, problem.relative) - sigma
    wanted = 0.0
    for atom in range(7):
        units = np.array(
            [
                unit
                for each, assignment in zip(values, assignments, strict=True)
                for unit in each[assignment == atom]
            ]
        )
        held = len(units)
        spread = sigma * np.eye(held) + sigma0 * np.ones((held, held))
        wanted += multivariate_normal(np.zeros(held), spread).logpdf(units.T).sum()
        wanted += betaln(held, 3 - held + 1) + np.log(0.7)
    assert problem.likelihood(assignments) == pytest.approx(wanted)


def test_the_first_search_stands_where_it_is_more_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = [unrelated(8, 30, 20, seed=seed) for seed in (0, 2, 3)]
    found = [matched(weights) for weights in layers]
    assert all(each.apart > variances.APART for each in found), "so that both searches are made"
    monkeypatch.setattr(variances, "APART", 1.0)
    for each, weights in zip(found, layers, strict=True):
        assert same(each, matched(weights))


def test_scaling_does_not_change_a_second_search() -> None:
    weights, _ = sharing(8, 10, 60, 0.125)
    one, other = matched(weights), matched([2.0**-7 * each for each in weights])
    assert same(one, other)
    assert other.sigma == 4.0**-7 * one.sigma


def test_what_a_device_does_not_know_has_no_part_in_a_second_search() -> None:
    weights, orders = sharing(8, 10, 200, 0.125)
    known = [np.repeat([1.0, 0.0], 200)] * 8
    rng = np.random.default_rng(4)
    spoilt = [np.hstack([each, 50 * rng.standard_normal(each.shape)]) for each in weights]
    found = match_layer(spoilt, settings=AUTO, rng=np.random.default_rng(1), precisions=known)
    assert misplaced(found.assignments, orders) == 0


def test_a_given_variance_is_used() -> None:
    weights, _ = planted(3, 10, 50)
    found = matched(weights, MatchSettings(sigma=0.5))
    assert found.sigma == 0.5
    assert 0 < found.sigma0 != matched(weights).sigma0
    assert matched(weights, MatchSettings(sigma0=2.0)).sigma0 == 2.0


def test_what_no_device_knows_does_not_count() -> None:
    weights, _ = planted(3, 12, 80)
    known = [np.repeat([1.0, 0.0], 40)] * 3
    spoilt = [np.concatenate([each[:, :40], 100 * each[:, 40:]], axis=1) for each in weights]
    rng = np.random.default_rng(1)
    found = match_layer(spoilt, settings=AUTO, rng=rng, precisions=known)
    assert found.sigma == pytest.approx(matched([each[:, :40] for each in weights]).sigma)

"""Label frequencies computed from answers: exact where the paper says so, and said where not."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.sharing.label_leakage import (
    frequencies_after_one_step,
    frequencies_after_steps,
    frequencies_of_mixture,
    total_variation,
)
from edgefed.sharing.types import Array

seeds = st.integers(0, 10**6)


def drawn(seed: int, labels: int, experts: int) -> tuple[Array, Array]:
    """Frequencies of which some are 0, and a table."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(labels, 0.4))
    shares[rng.random(labels) < 0.3] = 0
    shares[rng.integers(labels)] += 0.1
    return shares / shares.sum(), rng.dirichlet(np.full(experts, 0.7), labels)


@settings(max_examples=20, deadline=None)
@given(seeds, st.integers(2, 8), st.integers(0, 4))
def test_with_as_many_experts_as_labels_it_is_exact(seed: int, labels: int, more: int) -> None:
    shares, table = drawn(seed, labels, labels + more)
    if np.linalg.cond(table) > 50:
        return
    found = frequencies_of_mixture(shares @ table, table)
    assert found.determined
    assert np.abs(found.shares - shares).max() < 1e-6


@settings(max_examples=20, deadline=None)
@given(seeds, st.integers(3, 9), st.integers(1, 4))
def test_with_fewer_experts_it_says_so_and_explains_the_mixture(
    seed: int, labels: int, experts: int
) -> None:
    experts = min(experts, labels - 1)
    shares, table = drawn(seed, labels, experts)
    found = frequencies_of_mixture(shares @ table, table)
    assert not found.determined
    assert found.shares.min() >= 0
    assert found.shares.sum() == pytest.approx(1)
    assert np.abs(found.shares @ table - shares @ table).max() < 1e-5
    assert (found.shares**2).sum() <= (shares**2).sum() + 1e-5, "no longer than the true ones"


def test_without_a_bound_the_least_norm_is_the_pseudo_inverses() -> None:
    table = np.array([[0.5, 0.5], [0.4, 0.6], [0.6, 0.4], [0.45, 0.55]])
    mixture = np.array([0.49, 0.51])
    found = frequencies_of_mixture(mixture, table)
    expected = np.linalg.pinv(table.T) @ mixture
    assert expected.min() > 0
    assert np.abs(found.shares - expected / expected.sum()).max() < 1e-6


def test_an_even_table_tells_nothing() -> None:
    found = frequencies_of_mixture(np.full(4, 0.25), np.full((10, 4), 0.25))
    assert not found.determined
    assert np.abs(found.shares - 0.1).max() < 1e-6


def test_a_mixture_that_no_frequencies_give_has_the_nearest() -> None:
    table = np.array([[0.9, 0.1], [0.5, 0.5]])
    mixture = np.array([0.2, 0.8])
    grid = [(p, np.abs(np.array([p, 1 - p]) @ table - mixture).sum()) for p in np.linspace(0, 1)]
    best = min(grid, key=lambda each: each[1])[0]
    assert frequencies_of_mixture(mixture, table).shares[0] == pytest.approx(best, abs=1e-6)


def test_labels_that_share_a_row_cannot_be_told_apart() -> None:
    table = np.array([[0.8, 0.1, 0.1], [0.8, 0.1, 0.1], [0.1, 0.1, 0.8]])
    found = frequencies_of_mixture(np.array([0.6, 0.0, 0.4]) @ table, table)
    assert not found.determined
    assert found.shares == pytest.approx([0.3, 0.3, 0.4], abs=1e-6)


def trained_bias(targets: Array, classes: int, rate: float, steps: int, zero: bool) -> Array:
    """The change of the output bias by full-batch gradient descent on a linear model, float32."""
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(len(targets), 6, generator=generator)
    weight = torch.zeros(classes, 6) if zero else torch.randn(classes, 6, generator=generator) / 9
    bias = torch.zeros(classes)
    weight.requires_grad_()
    bias.requires_grad_()
    for _ in range(steps):
        logits = inputs @ weight.T + bias
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(targets))
        of_weight, of_bias = torch.autograd.grad(loss, (weight, bias))
        with torch.no_grad():
            weight -= rate * of_weight
            bias -= rate * of_bias
    return bias.detach().numpy()


LABELS = np.array([0] * 5 + [1] * 20 + [3] * 15)
TRUE = np.array([5, 20, 0, 15]) / 40


@pytest.mark.parametrize("rate", [0.01, 0.1, 1.0])
def test_one_step_from_a_zero_output_layer_tells_the_frequencies_exactly(rate: float) -> None:
    change = trained_bias(LABELS, 4, rate, 1, zero=True)
    assert np.abs(frequencies_after_one_step(change, rate) - TRUE).max() < 1e-6


def test_one_step_from_other_weights_tells_them_nearly() -> None:
    change = trained_bias(LABELS, 4, 0.1, 1, zero=False)
    assert total_variation(frequencies_after_one_step(change, 0.1), TRUE) < 0.1


def test_several_steps_still_tell_which_labels_are_frequent() -> None:
    found = frequencies_after_steps(trained_bias(LABELS, 4, 0.1, 8, zero=True))
    assert found[2] == 0
    assert list(np.argsort(found)) == list(np.argsort(TRUE))
    assert total_variation(found, TRUE) < 0.1


@pytest.mark.parametrize("change", list(itertools.product([0.0, 0.5], repeat=2)))
def test_any_change_gives_frequencies(change: tuple[float, float]) -> None:
    for found in (
        frequencies_after_steps(np.array(change)),
        frequencies_after_one_step(np.array(change) - 1, 0.1),
    ):
        assert found.min() >= 0
        assert found.sum() == pytest.approx(1)


def test_the_distance_of_frequencies() -> None:
    assert total_variation(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == 1
    assert total_variation(TRUE, TRUE) == 0
    assert total_variation(np.array([0.5, 0.5]), np.array([0.25, 0.75])) == 0.25

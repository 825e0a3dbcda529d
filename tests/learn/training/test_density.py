"""A small variational autoencoder says on which device's samples an input is likely."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgefed.errors import DataError
from edgefed.learn.base.types import Array
from edgefed.learn.training import density
from edgefed.learn.training.density import density_shares, density_specs, fit_density, log_densities
from edgefed.learn.training.trainer import Stopped
from edgefed.wire.tensors import specs_of

CPU = torch.device("cpu")


def inputs(seed: int, bright: slice, count: int = 30) -> Array:
    """Return noise images of 4 x 4 with some bright rows."""
    found = np.random.default_rng(seed).uniform(0, 0.2, (count, 1, 4, 4)).astype(np.float32)
    found[:, :, bright] += 0.8
    return found


def test_an_input_is_likeliest_on_the_device_with_such_samples() -> None:
    parts = (slice(0, 2), slice(2, 4))
    fitted = [fit_density(inputs(n, part), 5, CPU) for n, part in enumerate(parts)]
    for draws in (1, 4):
        shares = density_shares(fitted, [30, 10], draws, 7)
        for n, part in enumerate(parts):
            found = shares(inputs(10 + n, part, 20))
            assert found.sum(axis=1) == pytest.approx(1.0)
            assert found[:, n].min() > 0.9
    same = density_shares([fitted[0]] * 2, [30, 10], 1, 7)(inputs(3, parts[0], 5))
    np.testing.assert_allclose(same, [[0.75, 0.25]] * 5)  # p(s) where nothing else tells


def test_a_fit_depends_on_samples_and_seed_alone() -> None:
    part = inputs(0, slice(0, 2), 30)
    first = fit_density(part, 5, CPU)
    torch.manual_seed(99)
    again, other = fit_density(part, 5, CPU), fit_density(part, 6, CPU)
    assert all((first[name] == again[name]).all() for name in first)
    assert any((first[name] != other[name]).any() for name in first)
    assert specs_of(first) == density_specs(16)


def test_more_draws_tighten_the_bound() -> None:
    fitted, test = fit_density(inputs(0, slice(0, 2)), 5, CPU), inputs(3, slice(0, 2), 40)
    fitted["encoder.4.bias"] = fitted["encoder.4.bias"] + np.float32(1)  # a posterior that is off
    means = [log_densities(fitted, test, draws, 7).mean() for draws in (1, 8, 64)]
    assert means[0] + 1 < means[1] < means[2] - 1


def test_where_the_latent_says_nothing_the_bound_is_exact() -> None:
    fitted = {
        name: np.zeros(spec.shape, np.float32) for name, spec in density.density_specs(16).items()
    }  # each pixel is a coin, whatever z is, and z is standard normal
    test = inputs(3, slice(0, 2), 5)
    for draws in (1, 64):
        np.testing.assert_allclose(log_densities(fitted, test, draws, 7), 16 * np.log(0.5), 1e-5)


def test_training_ends_when_the_bound_gets_no_better(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = iter([1.0, 3.0, 2.0, 3.0, 2.5, 9.0])
    monkeypatch.setattr(density, "_bounds", lambda *_: np.array([next(bounds)]))
    epochs: list[float] = []
    fit_density(inputs(0, slice(0, 2), 20), 5, CPU, epochs.append)
    assert len(epochs) == 5


def test_what_cannot_be_fitted() -> None:
    for wrong in (inputs(0, slice(0, 2)) - 0.5, np.zeros((3, 4), np.int64)):
        with pytest.raises(DataError) as caught:
            fit_density(wrong, 5, CPU)
        assert caught.value.code == "data.density"
    with pytest.raises(Stopped):
        fit_density(inputs(0, slice(0, 2)), 5, CPU, stop=lambda: True)

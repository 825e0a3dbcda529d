"""Samples that are skipped on their way back through an expert: what stays exact, and the bound."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from edgefed.learn.base.types import Context, Job, Params, Schedule
from edgefed.learn.modeling.model import Model
from edgefed.learn.objectives.expert_mixture import (
    GATE_BIAS,
    GATE_WEIGHT,
    PERSONAL_BIAS,
    SHARES,
    TABLE,
    forward_where,
)
from tests.learn import worlds
from tests.learn.mixtures import Mixture, mean_slope
from tests.learn.training.test_stacked import assert_alike

LEAST = 0.2


def small() -> Model:
    return worlds.model("mlp", hidden=[9])


def outcome(mixture: Mixture) -> tuple[torch.Tensor, Params, Params]:
    """Return torch's loss, the gradients by name, and assigned values."""
    params = mixture.params()
    loss, values = mixture.objective.loss_and_values(
        mixture.objective.model.forward, params, mixture.batch, Context({}, mixture.extras())
    )
    wanted = [params[name] for name in mixture.trained]
    found = torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)
    return loss.detach(), dict(zip(mixture.trained, found, strict=True)), values


def pair(seed: int, **changes: Any) -> tuple[Mixture, Mixture]:
    """Return the same mixture exactly, and with samples skipped."""
    exact = Mixture(small(), 3, seed=seed, **changes)
    return exact, Mixture(small(), 3, seed=seed, skip_below=LEAST, **changes)


def flat(found: Params, names: list[str]) -> torch.Tensor:
    return torch.cat([found[name].flatten() for name in names])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.booleans())
def test_only_experts_gradients_change_and_by_less_than_the_bound(seed: int, local: bool) -> None:
    changes = {"detaches": True, "has_bias": True, "entropy": "local" if local else "none"}
    exact, skipping = pair(seed, **changes)
    loss, wanted, _ = outcome(exact)
    other, found, _ = outcome(skipping)
    torch.testing.assert_close(other, loss)
    for name in (TABLE, GATE_WEIGHT, GATE_BIAS, PERSONAL_BIAS):
        torch.testing.assert_close(found[name], wanted[name])
    for expert in range(3):
        names = list(exact.objective.names_of(expert).values())
        missing = float((flat(found, names) - flat(wanted, names)).norm())
        assert missing <= LEAST * mean_slope(exact, expert, exact.params())


def test_shares_that_belong_to_a_device_are_the_same() -> None:
    exact, skipping = pair(3, by_device=True, detaches=True)
    torch.testing.assert_close(outcome(skipping)[2][SHARES], outcome(exact)[2][SHARES])


def test_samples_are_skipped() -> None:
    """An expert's gradient is that of the samples with a share in it, over the whole batch."""
    mixture = Mixture(small(), 3, skip_below=LEAST, detaches=True)
    table = torch.softmax(torch.tensor(mixture.variables[TABLE]), 1)
    shares = table[mixture.batch.targets]
    flows = shares >= LEAST
    assert not flows.all()
    _, found, _ = outcome(mixture)
    for expert in range(3):
        params = mixture.params()
        weights = mixture.objective.weights_of(expert, params)
        logits = mixture.objective.model.forward(weights, mixture.batch.inputs)
        each = nn.functional.cross_entropy(logits, mixture.batch.targets, reduction="none")
        loss = (each * shares[:, expert] * flows[:, expert]).sum() / len(each)
        names = list(mixture.objective.names_of(expert).values())
        wanted = torch.autograd.grad(loss, [params[name] for name in names])
        for name, gradient in zip(names, wanted, strict=True):
            torch.testing.assert_close(found[name], gradient)


def test_gradients_of_the_gate_keep_samples_where_the_device_uses_the_expert() -> None:
    exact, skipping = pair(5)
    mixture = torch.softmax(torch.tensor(exact.variables[TABLE]), 1)
    own = torch.tensor(exact.extra["frequencies"]) @ mixture
    used = [expert for expert in range(3) if own[expert] >= LEAST]
    assert len(used) in (1, 2)
    wanted, found = outcome(exact)[1], outcome(skipping)[1]
    for expert in range(3):
        names = list(exact.objective.names_of(expert).values())
        same = torch.allclose(flat(found, names), flat(wanted, names))
        assert same == (expert in used)


def test_the_direct_objective_is_exact() -> None:
    exact, skipping = pair(3, entropy="direct")
    wanted, found = outcome(exact)[1], outcome(skipping)[1]
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient)


class Doubled(nn.Module):
    """A module of a user, which could do anything."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return 2 * inputs


def dense(*more: nn.Module) -> Model:
    return Model(nn.Sequential(nn.Flatten(), *more, nn.Linear(64, 3)), worlds.SHAPE, 3)


def test_samples_are_told_apart_only_where_they_do_not_depend_on_each_other() -> None:
    assert dense().is_samplewise
    assert dense(nn.Dropout(0.0)).is_samplewise
    assert worlds.model("resnet20", norm="group").is_samplewise
    for part in (nn.Dropout(0.1), nn.BatchNorm1d(64), Doubled()):
        assert not dense(part).is_samplewise


@pytest.mark.parametrize("count", [0, 1, 4, 6])
def test_a_pass_in_two_parts_is_the_whole_one(count: int) -> None:
    model = small()
    params = {name: torch.tensor(part).requires_grad_() for name, part in model.weights().items()}
    inputs = torch.randn(6, *worlds.SHAPE, generator=torch.Generator().manual_seed(1))
    flows = torch.zeros(6, dtype=torch.bool)
    flows[torch.tensor([4, 0, 5, 2, 1, 3])[:count]] = True
    seen: list[tuple[int, bool]] = []

    def forward(part: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        seen.append((len(part), torch.is_grad_enabled()))
        return model.forward_with_features(params, part)

    found = []
    for samplewise in (True, False):
        model.__dict__["is_samplewise"] = samplewise
        logits, features = forward_where(model, forward, inputs, flows)
        loss = logits.square().sum() + features.sin().sum()
        slopes = torch.autograd.grad(loss, list(params.values())) if count else ()
        found.append((logits, features, *slopes))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
    parts = [(count, True), (6 - count, False)]
    assert seen == [part for part in parts if part[0]] + [(6, True)]


@pytest.mark.parametrize("by_device", [False, True])
def test_many_clients_at_once_skip_the_same_samples(by_device: bool) -> None:
    settings: dict[str, Any] = {"by_device": by_device, "detaches": True, "threshold": 0.5}
    mixture = Mixture(small(), 3, skip_below=LEAST, **settings)
    parts = [worlds.samples(9, seed) for seed in (1, 2)]
    jobs = [
        Job(
            mixture.weights,
            mixture.objective,
            Schedule(batch_size=4, learning_rate=0.1),
            seed=seed,
            extra=mixture.extra,
            variables=mixture.variables,
        )
        for seed in (3, 4)
    ]
    assert_alike(small(), jobs, parts, error=1e-5)

"""Training with the objective of a mixture of experts: alone, stacked, and until experts settle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgefed.learn.base.types import Array, Batch, Job, Samples, Schedule
from edgefed.learn.compiled import compiled_experts
from edgefed.learn.modeling.model import Model
from edgefed.learn.objectives.expert_mixture import (
    FREQUENCIES,
    GATE_BIAS,
    GATE_WEIGHT,
    SHARES,
    TABLE,
    EntropyTerm,
    ExpertMixture,
    expert_name,
)
from edgefed.learn.training.trainer import Trainer
from edgefed.native.library import Native
from tests.learn.training.test_stacked import assert_alike

K, C, WIDTH, INPUTS = 3, 4, 5, 6


def model() -> Model:
    torch.manual_seed(2)
    layers = nn.Sequential(nn.Linear(INPUTS, WIDTH), nn.Tanh(), nn.Linear(WIDTH, C))
    return Model(layers, (INPUTS,), C)


def jobs(
    count: int, of: ExpertMixture, trained: Model, steps: int = 30
) -> list[tuple[Job, Samples]]:
    """Return jobs of devices with noise shifted by its label."""
    made = []
    for number in range(count):
        rng = np.random.default_rng(number)
        labels = rng.integers(0, C, 12)
        inputs = rng.normal(0, 1, (12, INPUTS)) + labels[:, None]
        first = trained.weights()
        numbers = np.random.default_rng(3)
        extra: Mapping[str, Any] = {}
        variables = {
            expert_name(k, n): numbers.normal(0, 0.5, a.shape).astype(np.float32)
            for k in of.kept[1:]
            for n, a in first.items()
        }
        variables |= {GATE_WEIGHT: np.zeros((WIDTH, K), np.float32)}
        variables |= {GATE_BIAS: np.zeros(K, np.float32)}
        if of.by_device:
            variables[SHARES] = np.full(K, 1 / K, np.float32)
        else:
            variables[TABLE] = np.zeros((C, K), np.float32)
            extra = {FREQUENCIES: (np.bincount(labels, minlength=C) / 12).astype(np.float32)}
        schedule = Schedule(epochs=100, batch_size=4, learning_rate=0.2, max_steps=steps)
        job = Job(first, of, schedule, number, extra, variables=variables)
        made.append((job, Samples(inputs.astype(np.float32), labels)))
    return made


@pytest.mark.parametrize("is_compiled", [True, False])
def test_training_leaves_the_share_of_an_expert_that_is_not_here(
    is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(compiled_experts, "native", lambda: Native(None, 1, ""))
    small = model()
    of = ExpertMixture(small, K, (0, 2), by_device=True)
    ((job, data),) = jobs(1, of, small, 20)
    after = Trainer(small, "cpu").train(job, data).variables[SHARES]
    assert after[1] == np.float32(1 / K)
    assert after.sum() == pytest.approx(1, abs=1e-6)
    assert abs(after[0] - after[2]) > 0.01


@pytest.mark.parametrize(("kept", "by_device"), [((0, 1, 2), False), ((0, 2), True)])
def test_a_stack_of_devices_ends_where_each_alone_does(
    kept: tuple[int, ...], by_device: bool
) -> None:
    small = model()
    of = ExpertMixture(small, K, kept, by_device=by_device, threshold=0.5)
    work = jobs(3, of, small, 10)
    assert_alike(small, [job for job, _ in work], [data for _, data in work], error=1e-4)


def trained(entropy: EntropyTerm) -> tuple[Array, Array]:
    """Return q(z|y) and the gate's mean probabilities after a device has trained for long."""
    small = model()
    of = ExpertMixture(small, K, (0, 1, 2), entropy=entropy)
    ((job, data),) = jobs(1, of, small, 300)
    after = Trainer(small, "cpu").train(job, data)
    given = {name: torch.tensor(a) for name, a in {**after.weights, **after.variables}.items()}
    frequencies = torch.tensor(job.extra[FREQUENCIES])
    batch = Batch(torch.tensor(data.inputs), torch.tensor(data.targets))
    _, features = of._experts(given, batch, None)
    _, own = of._shares({**given, FREQUENCIES: frequencies}, batch)
    gate = torch.exp(of._log_gate(given, features, own)).mean(0)
    return torch.softmax(given[TABLE], 1).numpy(), gate.numpy()


def test_experts_specialise_without_the_entropy_and_become_an_ensemble_with_it() -> None:
    plain, local = trained("none"), trained("local")
    assert plain[0].max(axis=1).min() > 0.6, "each label has an expert"
    assert local[0].max() < 0.5
    assert local[1].max() < 0.5


def test_the_likelihood_itself_leaves_one_expert() -> None:
    table, gate = trained("direct")
    np.testing.assert_allclose(table, 1 / K, rtol=1e-6)  # it has no part in equation 3
    assert gate.max() > 0.65


def test_bfloat16_training_stays_near() -> None:
    small = model()
    of = ExpertMixture(small, K, (0, 1, 2))
    ((job, data),) = jobs(1, of, small, 5)
    plain = Trainer(small, "cpu").train(job, data)
    rough = replace(job, schedule=replace(job.schedule, precision="bf16"))
    found = Trainer(small, "cpu").train(rough, data)
    assert found.loss == pytest.approx(plain.loss, rel=0.05)
    np.testing.assert_allclose(found.variables[TABLE], plain.variables[TABLE], atol=0.05)

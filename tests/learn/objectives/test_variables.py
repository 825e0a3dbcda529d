"""Arrays that are trained beside a model's weights, and samples that a job brings itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from edgefed.errors import DataError
from edgefed.learn.base.types import Batch, Context, Forward, Job, Params, Schedule, Tensors
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.proximal import Proximal
from edgefed.learn.training.stacked_trainer import StackedTrainer
from edgefed.learn.training.trainer import Trainer
from tests.learn import worlds
from tests.learn.training.test_stacked import assert_alike

RATE = 0.25


@dataclass(frozen=True)
class Shifted:
    """Cross-entropy of logits plus a trained ``shift``; or of the logits alone."""

    used: bool = True

    def __call__(
        self, forward: Forward, params: Params, batch: Batch, context: Context
    ) -> torch.Tensor:
        logits = forward(params, batch.inputs)
        return functional.cross_entropy(
            logits + params["shift"] if self.used else logits, batch.targets
        )


def same(one: Tensors, other: Tensors) -> bool:
    return all(np.array_equal(array, other[name]) for name, array in one.items())


def shift(value: float = 0.0) -> Tensors:
    return {"shift": np.full(worlds.CLASSES, value, np.float32)}


def one_step(count: int = 6, **changes: object) -> Job:
    weights = worlds.model("mlp").weights()
    job = Job(weights, Shifted(), Schedule(1, count, RATE), seed=3, variables=shift())
    return replace(job, **changes)  # type: ignore[arg-type]


def test_a_variable_moves_against_its_own_gradient() -> None:
    model, data = worlds.model("mlp"), worlds.samples(6)
    trained = Trainer(model, "cpu").train(one_step(), data)
    params = {name: torch.tensor(array) for name, array in model.weights().items()}
    logits = model.forward(params, torch.tensor(data.inputs))
    probabilities = torch.softmax(logits, dim=1).detach().numpy()
    one_hot = np.eye(worlds.CLASSES)[data.targets]
    expected = -RATE * (probabilities - one_hot).mean(axis=0)  # d CE / d shift = mean(p - y)
    assert trained.variables["shift"] == pytest.approx(expected, abs=1e-6)
    assert trained.weights.keys() == model.weights().keys()


def test_a_variable_that_the_objective_ignores_stays_and_changes_no_weight() -> None:
    data, trainer = worlds.samples(6), Trainer(worlds.model("mlp"), "cpu")
    beside = trainer.train(one_step(objective=Shifted(used=False), variables=shift(2.0)), data)
    alone = trainer.train(one_step(objective=Shifted(used=False), variables={}), data)
    assert (beside.variables["shift"] == 2.0).all()
    assert same(beside.weights, alone.weights)


def test_the_compiled_path_does_not_forget_variables() -> None:
    """Plain cross-entropy has a compiled path, which knows weights only."""
    data, trainer = worlds.samples(6), Trainer(worlds.model("mlp"), "cpu")
    job = one_step(objective=CrossEntropy(), schedule=Schedule(1, 6, RATE, weight_decay=0.5))
    after = trainer.train(replace(job, variables=shift(1.0)), data).variables["shift"]
    assert after == pytest.approx(1.0 - RATE * 0.5), "weight decay is all that moves it"


def test_the_proximal_term_pulls_weights_only() -> None:
    data, trainer = worlds.samples(6), Trainer(worlds.model("mlp"), "cpu")
    schedule = Schedule(4, 6, RATE)
    plain = trainer.train(one_step(schedule=schedule), data)
    held = trainer.train(one_step(schedule=schedule, objective=Proximal(Shifted(), 0.5)), data)
    assert not same(plain.weights, held.weights)
    only = one_step(schedule=schedule, frozen=frozenset(plain.weights))
    pulled = trainer.train(replace(only, objective=Proximal(Shifted(), 0.5)), data)
    assert same(pulled.variables, trainer.train(only, data).variables), "no variable is pulled"


def test_variables_alone_can_be_trained() -> None:
    model, data = worlds.model("mlp"), worlds.samples(6)
    job = one_step(frozen=frozenset(model.names))
    trained = Trainer(model, "cpu").train(job, data)
    assert same(trained.weights, job.weights)
    assert (trained.variables["shift"] != 0).any()


def test_a_variable_may_not_have_the_name_of_a_weight() -> None:
    name = worlds.model("mlp").names[0]
    job = one_step(variables={name: np.zeros(3, np.float32)})
    with pytest.raises(DataError, match="has the name of a weight") as caught:
        Trainer(worlds.model("mlp"), "cpu").train(job, worlds.samples(6))
    assert caught.value.code == "train.variables"


def test_a_variable_that_leaves_the_finite_numbers_is_told() -> None:
    def steep(forward: Forward, params: Params, batch: Batch, context: Context) -> torch.Tensor:
        return 10 * params["shift"].sum()

    job = one_step(objective=steep, schedule=Schedule(1, 6, 3e38))
    with pytest.raises(DataError, match="variables are no longer finite"):
        Trainer(worlds.model("mlp"), "cpu").train(job, worlds.samples(6))


def test_a_stack_of_clients_trains_variables_as_one_by_one() -> None:
    model = worlds.model("mlp")
    jobs = [
        one_step(seed=seed, schedule=Schedule(2, 4, RATE, 0.9), variables=shift(seed / 10))
        for seed in (1, 2, 3)
    ]
    data = [worlds.samples(count) for count in (9, 4, 6)]
    assert_alike(model, jobs, data, error=2e-6)


def test_variables_of_other_shapes_are_not_stacked_together() -> None:
    model = worlds.model("mlp")
    jobs = [one_step(), one_step(variables={**shift(), "other": np.ones(2, np.float32)})]
    data = [worlds.samples(6), worlds.samples(6)]
    first, second = StackedTrainer(model, "cpu").train(jobs, data)
    assert first.variables.keys() == {"shift"}
    assert second.variables.keys() == {"shift", "other"}


@pytest.mark.parametrize("stacked", [False, True])
def test_a_job_trains_on_the_samples_that_it_brings(stacked: bool) -> None:
    own, made = worlds.samples(9), worlds.samples(4)
    job = one_step(samples=made)
    if stacked:
        (found,) = StackedTrainer(worlds.model("mlp"), "cpu").train([job], [own])
    else:
        found = Trainer(worlds.model("mlp"), "cpu").train(job, own)
    alone = Trainer(worlds.model("mlp"), "cpu").train(replace(job, samples=None), made)
    assert found.samples == 4
    assert found.variables["shift"] == pytest.approx(alone.variables["shift"], abs=2e-6)


def test_a_job_that_brings_no_sample_is_refused() -> None:
    """Not trained on the device's own, which the algorithm has replaced."""
    job = one_step(samples=worlds.samples(0))
    with pytest.raises(DataError, match="no samples"):
        Trainer(worlds.model("mlp"), "cpu").train(job, worlds.samples(6))

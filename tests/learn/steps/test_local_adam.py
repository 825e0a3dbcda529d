"""Local Adam: torch.optim's numbers, alone, with the kernels and in a stack."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from edgefed.algorithms.composed.registry import make
from edgefed.config.recipes.recipe import ModelSection, Recipe
from edgefed.errors import UsageError
from edgefed.learn.base.types import Job, Samples, Schedule, Tensors
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build
from edgefed.learn.objectives.proximal import Proximal
from edgefed.learn.steps.local_optimizers import Adam, optimizer_of
from edgefed.learn.training.stacked_trainer import StackedTrainer
from edgefed.learn.training.trainer import Trainer
from edgefed.native.library import native
from tests.learn import worlds

ADAM = Schedule(3, 6, 0.01, optimizer="adam")
OTHERS = replace(ADAM, weight_decay=0.1, beta1=0.6, beta2=0.9, epsilon=1e-3)


@pytest.mark.parametrize("schedule", [ADAM, OTHERS, replace(ADAM, beta1=0.0, beta2=0.0)])
def test_each_step_is_torchs_bit_for_bit(schedule: Schedule) -> None:
    numbers = torch.Generator().manual_seed(1)
    shapes = [(5, 7), (7,), (3, 2, 3, 3), ()]
    ours = [torch.randn(shape, generator=numbers) for shape in shapes]
    theirs = [weight.clone().requires_grad_() for weight in ours]
    betas, decay = (schedule.beta1, schedule.beta2), schedule.weight_decay
    reference = torch.optim.Adam(
        theirs, schedule.learning_rate, betas, schedule.epsilon, decay, foreach=False
    )
    adam = Adam(schedule)
    for _ in range(12):
        gradients = [torch.randn(shape, generator=numbers) for shape in shapes]
        for weight, gradient in zip(theirs, gradients, strict=True):
            weight.grad = gradient.clone()
        reference.step()
        adam.step(ours, gradients, schedule.learning_rate)
        for gradient in gradients:
            gradient.fill_(float("nan"))  # as kernels overwrite them
        for mine, other in zip(ours, theirs, strict=True):
            assert torch.equal(mine, other.detach())


def by_torch(model: Model, job: Job, data: Samples) -> Tensors:
    """Train the module itself with torch.optim.Adam, in the order of the job's seed."""
    schedule, module = job.schedule, model.module.train()
    optimizer = torch.optim.Adam(
        module.parameters(),
        schedule.learning_rate,
        (schedule.beta1, schedule.beta2),
        schedule.epsilon,
        schedule.weight_decay,
    )
    inputs, labels = torch.from_numpy(data.inputs), torch.from_numpy(data.targets)
    generator = torch.Generator().manual_seed(job.seed)
    for _ in range(schedule.epochs):
        order = torch.randperm(len(data), generator=generator)
        for index in torch.split(order, schedule.batch_size):
            optimizer.zero_grad()
            loss = functional.cross_entropy(module(inputs[index]), labels[index])
            torch.autograd.backward(loss)
            optimizer.step()
    return model.weights()


@pytest.mark.parametrize("name", ["mlp", "cnn"])
@pytest.mark.parametrize("schedule", [ADAM, OTHERS])
def test_the_loop_is_torchs_adam(name: str, schedule: Schedule) -> None:
    data = worlds.samples(20)
    model = worlds.model(name)
    model.module.double()  # no kernels, and no step amplifies rounding
    wide = Samples(data.inputs.astype(np.float64), data.targets)
    job = worlds.job(model, schedule)
    ours = Trainer(model, "cpu").train(job, wide).weights
    theirs = by_torch(model, job, wide)
    for key, array in ours.items():
        np.testing.assert_allclose(array, theirs[key], rtol=1e-10, atol=1e-12)


@pytest.mark.skipif(native().library is None, reason=native().reason or "built")
def test_with_the_kernels_it_ends_where_it_ends_without(monkeypatch: pytest.MonkeyPatch) -> None:
    section = ModelSection.model_validate({"name": "mlp", "hidden": [16]})
    model = build(section, worlds.SHAPE, worlds.CLASSES, 1)
    job = replace(worlds.job(model, OTHERS), objective=Proximal(worlds.job(model).objective, 0.1))
    quick = Trainer(model, "cpu").train(job, worlds.samples(40))
    used: list[bool] = []
    monkeypatch.setattr("edgefed.learn.training.trainer.chain_of", lambda *_: used.append(True))
    slow = Trainer(model, "cpu").train(job, worlds.samples(40))
    assert used
    assert quick.loss == pytest.approx(slow.loss, rel=1e-5)
    for name, weights in quick.weights.items():
        np.testing.assert_allclose(weights, slow.weights[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("schedule", [ADAM, OTHERS, replace(ADAM, max_steps=4)])
def test_a_stack_ends_where_each_client_ends(schedule: Schedule) -> None:
    model = worlds.model("mlp")
    model.module.double()
    sizes = (13, 4, 6, 20, 1, 13, 9)  # so that some steps are of some clients only
    data = [worlds.samples(size, seed) for seed, size in enumerate(sizes)]
    jobs = [worlds.job(model, schedule, seed=seed) for seed in range(len(sizes))]
    trainer = Trainer(model, "cpu")
    alone = [trainer.train(job, own) for job, own in zip(jobs, data, strict=True)]
    for ours, theirs in zip(StackedTrainer(model, "cpu").train(jobs, data), alone, strict=True):
        assert ours.steps == theirs.steps
        for name, array in ours.weights.items():
            np.testing.assert_allclose(array, theirs.weights[name], rtol=1e-11, atol=1e-12)


def test_a_job_starts_without_the_state_of_the_one_before() -> None:
    model, data = worlds.model("mlp"), worlds.samples(20)
    trainer, job = Trainer(model, "cpu"), worlds.job(worlds.model("mlp"), ADAM)
    first = trainer.train(job, data).weights
    again = trainer.train(job, data).weights
    assert all(np.array_equal(first[name], again[name]) for name in first)


def test_the_first_step_moves_every_weight_by_the_learning_rate() -> None:
    model, data = worlds.model("mlp"), worlds.samples(20)
    one = Schedule(1, 20, 0.01, optimizer="adam", epsilon=1e-12)
    after = Trainer(model, "cpu").train(worlds.job(model, one), data).weights
    moved = np.concatenate(
        [np.abs(after[name] - old).ravel() for name, old in model.weights().items()]
    )
    assert moved[moved > 1e-6] == pytest.approx(np.full((moved > 1e-6).sum(), 0.01), rel=1e-3)
    assert (moved > 1e-6).mean() > 0.5


def test_settings_that_do_not_belong_together_are_refused() -> None:
    for wrong, words in (
        (Schedule(optimizer="adam", momentum=0.9), "no momentum of 0.9"),
        (Schedule(optimizer="rmsprop"), "rmsprop"),
    ):
        with pytest.raises(UsageError, match=words) as caught:
            optimizer_of(wrong)
        assert caught.value.code == "train.optimizer"
    training = {"optimizer": "adam", "momentum": 0.5}
    with pytest.raises(UsageError, match="momentum"):
        make(Recipe.model_validate({"training": training}))

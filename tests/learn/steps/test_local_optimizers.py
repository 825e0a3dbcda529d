"""Whole local trainings equal torch.optim's, with schedules, clipping, smoothing and weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.optim import lr_scheduler

from edgefed.algorithms.composed.registry import make
from edgefed.config.recipes.class_weights import ClassWeights
from edgefed.config.recipes.recipe import ModelSection, Recipe
from edgefed.errors import DataError, UsageError
from edgefed.learn.base.rate_schedule import RateSchedule
from edgefed.learn.base.types import Array, Job, Samples, Schedule, Tensors, Trained
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.proximal import Proximal
from edgefed.learn.samples.sample_order import planned_steps
from edgefed.learn.steps.local_optimizers import check_optimizer, optimizer_of
from edgefed.learn.training.stacked_steps import Client
from edgefed.learn.training.stacked_trainer import StackedTrainer
from edgefed.learn.training.trainer import Trainer
from edgefed.native.library import native
from tests.learn import worlds
from tests.learn.training.test_stacked import SIZES, assert_alike, clients, jobs

ADAMW = Schedule(3, 6, 0.01, optimizer="adamw", weight_decay=0.1, epsilon=1e-3)
NESTEROV = Schedule(3, 6, 0.05, momentum=0.9, nesterov=True, weight_decay=0.01)
COSINE = RateSchedule("cosine", warm_up=0.25, final_rate=0.1)
SCHEDULES = {
    "adamw": ADAMW,
    "adamw, cosine": replace(ADAMW, rates=COSINE),
    "nesterov": NESTEROV,
    "nesterov, linear": replace(NESTEROV, rates=RateSchedule("linear", warm_up=0.2)),
    "sgd, step": Schedule(3, 6, 0.1, rates=RateSchedule("step", step_every=4, step_factor=0.5)),
    "sgd, warm-up": Schedule(3, 6, 0.1, rates=RateSchedule(warm_up=0.5)),
    "sgd, momentum": Schedule(3, 6, 0.1, momentum=0.9, weight_decay=0.1),
    "adam": replace(ADAMW, optimizer="adam", beta1=0.6, beta2=0.9),
    "adam, cosine": replace(ADAMW, optimizer="adam", rates=COSINE),
    "clipped": replace(NESTEROV, max_gradient_norm=0.3),
    "all": replace(ADAMW, rates=COSINE, max_gradient_norm=0.2),
}
LOSSES = [
    CrossEntropy(),
    CrossEntropy(0.1),
    CrossEntropy(0.0, (0.5, 2.0, 1.0)),
    CrossEntropy(0.2, "balanced"),
]
CASES = [(name, LOSSES[place % len(LOSSES)]) for place, name in enumerate(SCHEDULES)]
"""Each schedule with one of the losses, and each of these with several schedules."""
cases = pytest.mark.parametrize(("name", "loss"), CASES, ids=str)


def optimizer_by_torch(schedule: Schedule, module: torch.nn.Module) -> torch.optim.Optimizer:
    rate, decay = schedule.learning_rate, schedule.weight_decay
    if schedule.optimizer == "sgd":
        return torch.optim.SGD(
            module.parameters(), rate, schedule.momentum, 0, decay, schedule.nesterov
        )
    kind = torch.optim.AdamW if schedule.optimizer == "adamw" else torch.optim.Adam
    betas = (schedule.beta1, schedule.beta2)
    return kind(module.parameters(), rate, betas, schedule.epsilon, decay)


def weights_by_hand(choice: ClassWeights, labels: Array) -> list[float]:
    """Return n / (K n_c), as scikit-learn's ``compute_class_weight`` does."""
    if choice == "none":
        return [1.0] * worlds.CLASSES
    if choice != "balanced":
        return list(choice)
    counts = [int((labels == label).sum()) for label in range(worlds.CLASSES)]
    present = sum(count > 0 for count in counts)
    return [float(np.float32(len(labels) / (present * n))) if n else 0.0 for n in counts]


def by_torch(model: Model, job: Job, data: Samples) -> Tensors:
    """Train the module itself with torch's optimisers, schedulers, clipping and loss."""
    schedule, module, loss = job.schedule, model.module.train(), job.objective
    assert isinstance(loss, CrossEntropy)
    optimizer = optimizer_by_torch(schedule, module)
    rates, total = schedule.rates, planned_steps(len(data), schedule)
    by_rate = lr_scheduler.LambdaLR(
        optimizer, lambda place: rates.factor(min(place, total - 1), total)
    )
    kind = next(module.parameters()).dtype
    weights = torch.tensor(weights_by_hand(loss.class_weights, data.targets), dtype=kind)
    inputs, labels = torch.from_numpy(data.inputs), torch.from_numpy(data.targets)
    generator = torch.Generator().manual_seed(job.seed)
    for _ in range(schedule.epochs):
        order = torch.randperm(len(data), generator=generator)
        for index in torch.split(order, schedule.batch_size):
            optimizer.zero_grad()
            found = functional.cross_entropy(
                module(inputs[index]),
                labels[index],
                weights,
                label_smoothing=loss.label_smoothing,
            )
            torch.autograd.backward(found)
            if schedule.max_gradient_norm:
                torch.nn.utils.clip_grad_norm_(module.parameters(), schedule.max_gradient_norm)
            optimizer.step()
            by_rate.step()
    return model.weights()


def wide(data: Samples) -> Samples:
    return Samples(data.inputs.astype(np.float64), data.targets)


@pytest.mark.parametrize(
    "schedule",
    [
        ADAMW,
        replace(ADAMW, beta1=0.0, beta2=0.0),
        NESTEROV,
        replace(NESTEROV, weight_decay=0.0),
        replace(NESTEROV, nesterov=False),
        SCHEDULES["adam"],
        replace(ADAMW, optimizer="adam", beta1=0.0, beta2=0.0),
    ],
)
@pytest.mark.parametrize(("kind", "error"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
def test_each_step_is_torchs(schedule: Schedule, kind: torch.dtype, error: float) -> None:
    numbers = torch.Generator().manual_seed(1)
    module = torch.nn.Linear(5, 7).to(kind)
    ours = [weight.detach().clone() for weight in module.parameters()]
    reference = optimizer_by_torch(schedule, module)
    optimizer = optimizer_of(schedule)
    error = 0 if schedule.optimizer == "adam" else error
    for step in range(12):
        rate = 0.1 / (step + 1)
        gradients = [torch.randn(part.shape, generator=numbers, dtype=kind) for part in ours]
        for weight, gradient in zip(module.parameters(), gradients, strict=True):
            weight.grad = gradient.clone()
        reference.param_groups[0]["lr"] = rate
        reference.step()
        optimizer.step(ours, gradients, rate)
        for gradient in gradients:
            gradient.fill_(float("nan"))  # as kernels overwrite them
        for mine, other in zip(ours, module.parameters(), strict=True):
            torch.testing.assert_close(mine, other.detach(), rtol=error, atol=error)


@cases
def test_the_loop_is_torchs(name: str, loss: CrossEntropy) -> None:
    data = wide(worlds.samples(20))
    model = worlds.model("mlp")
    model.module.double()  # no kernels, and no step amplifies rounding
    job = worlds.job(model, SCHEDULES[name], objective=loss)
    ours = Trainer(model, "cpu").train(job, data).weights
    theirs = by_torch(model, job, data)
    for key, array in ours.items():
        np.testing.assert_allclose(array, theirs[key], rtol=1e-10, atol=1e-12)


def without_kernels(model: Model, job: Job, data: Samples, patch: pytest.MonkeyPatch) -> Tensors:
    used: list[bool] = []

    def no_chain(*_: object) -> None:
        used.append(True)

    with patch.context() as patched:
        patched.setattr("edgefed.learn.training.trainer.chain_of", no_chain)
        weights = Trainer(model, "cpu").train(job, data).weights
    assert used
    return weights


@pytest.mark.skipif(native().library is None, reason=native().reason or "built")
@cases
def test_the_kernels_take_part_and_end_as_torch(
    name: str, loss: CrossEntropy, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = ModelSection.model_validate({"name": "mlp", "hidden": [16]})
    model = build(section, worlds.SHAPE, worlds.CLASSES, 1)
    job = worlds.job(model, SCHEDULES[name], objective=Proximal(loss, 0.1))
    data = worlds.samples(40)
    slow = without_kernels(model, job, data, monkeypatch)
    forward: Callable[..., torch.Tensor] = type(model).forward

    def never(*_: object) -> torch.Tensor:
        raise AssertionError("torch made a pass")

    monkeypatch.setattr(type(model), "forward", never)
    quick = Trainer(model, "cpu").train(job, data).weights
    monkeypatch.setattr(type(model), "forward", forward)
    for key, array in quick.items():
        np.testing.assert_allclose(array, slow[key], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "loss"), CASES[::3], ids=str)
def test_a_stack_ends_where_each_client_ends(name: str, loss: CrossEntropy) -> None:
    model = worlds.model("mlp")
    model.module.double()
    work = jobs(model, len(SIZES), SCHEDULES[name], objective=loss)
    assert_alike(model, work, clients(), error=1e-11)


def test_a_job_starts_without_the_state_of_the_one_before() -> None:
    model, data = worlds.model("mlp"), worlds.samples(20)
    trainer, job = Trainer(model, "cpu"), worlds.job(model, SCHEDULES["adam"])
    first, again = (trainer.train(job, data).weights for _ in range(2))
    assert all(np.array_equal(first[name], again[name]) for name in first)


def test_clients_with_balanced_weights_share_a_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    model, loss = worlds.model("mlp"), CrossEntropy(0.1, "balanced")
    jobs = [worlds.job(model, ADAMW, objective=loss, seed=seed) for seed in (1, 2)]
    trainer, sizes = StackedTrainer(model, "cpu"), list[int]()
    run = trainer._run

    def counted(clients: Sequence[Client], stop: None) -> list[Trained | DataError]:
        sizes.append(len(clients))
        return run(clients, stop)

    monkeypatch.setattr(trainer, "_run", counted)
    trainer.train(jobs, [worlds.samples(12, 1), worlds.samples(12, 2)])
    assert sizes == [2]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (Schedule(optimizer="adamw", momentum=0.9), "AdamW has no momentum of 0.9"),
        (Schedule(optimizer="adam", momentum=0.9), "Adam has no momentum of 0.9"),
        (Schedule(optimizer="adamw", nesterov=True), "AdamW has no Nesterov"),
        (Schedule(optimizer="adam", nesterov=True), "Adam has no Nesterov"),
        (Schedule(nesterov=True), "needs a momentum"),
        (Schedule(optimizer="lion"), "no local optimiser 'lion'"),
    ],
)
def test_settings_that_do_not_belong_together_are_refused(wrong: Schedule, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        check_optimizer(wrong)
    assert caught.value.code == "train.optimizer"
    assert caught.value.hint


def test_a_recipe_of_such_settings_is_refused() -> None:
    with pytest.raises(UsageError, match="momentum"):
        make(Recipe.model_validate({"training": {"optimizer": "adam", "momentum": 0.5}}))

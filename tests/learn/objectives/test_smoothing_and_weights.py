"""Label smoothing and class weights: torch's loss, its slope, mixing, and a device's own counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from edgefed.config.recipes.recipe import ModelSection
from edgefed.errors import RecipeError
from edgefed.learn.base.types import Context, Job, Objective, Samples, Schedule, Tensors
from edgefed.learn.modeling.model_building import build
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.fed_mix import FedMixObjective
from edgefed.learn.objectives.global_mix import GlobalMixObjective
from edgefed.learn.objectives.local_mix import LocalMixObjective
from edgefed.learn.objectives.losses import soft
from edgefed.learn.objectives.manifold_mixing import ManifoldMixing
from edgefed.learn.objectives.mixing import Mixing
from edgefed.learn.objectives.naive_mix import NaiveMixObjective
from edgefed.learn.objectives.proximal import Proximal
from edgefed.learn.objectives.smoothing_and_weights import CLASS_WEIGHTS, class_weights
from edgefed.learn.steps import capabilities
from edgefed.learn.training.trainer import Trainer
from edgefed.native.library import native
from tests.learn import worlds
from tests.learn.compiled.test_chain import a_batch, a_model, params_of
from tests.learn.objectives.test_chain_mixing import (
    a_context,
    an_extra,
    assert_close,
    by_chain,
    exactly,
)
from tests.learn.training.test_stacked import assert_alike

WEIGHTS = torch.tensor([0.5, 2.0, 0.0, 1.5, 1.0], dtype=torch.float64)
ADJUSTED = [CrossEntropy(0.1), CrossEntropy(0.0, "balanced"), CrossEntropy(0.3, "balanced")]


def problem(
    *, as_shares: bool, kind: torch.dtype = torch.float64
) -> tuple[torch.Tensor, torch.Tensor]:
    numbers = torch.Generator().manual_seed(3)
    outputs = torch.randn(9, 5, generator=numbers, dtype=kind) * 3
    labels = torch.randint(5, (9,), generator=numbers)
    shares = torch.softmax(torch.randn(9, 5, generator=numbers, dtype=kind), dim=1)
    return outputs.requires_grad_(), shares if as_shares else labels


def context(weights: torch.Tensor | None = WEIGHTS) -> Context:
    return Context({}, {} if weights is None else {CLASS_WEIGHTS: weights})


# -- the loss -------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_shares", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize(("kind", "error"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
def test_the_loss_is_torchs(
    as_shares: bool,
    smoothing: float,
    weights: torch.Tensor | None,
    kind: torch.dtype,
    error: float,
) -> None:
    outputs, targets = problem(as_shares=as_shares, kind=kind)
    loss = CrossEntropy(smoothing, "none" if weights is None else "balanced")
    torchs = None if weights is None else weights.to(kind)
    wanted = functional.cross_entropy(outputs, targets, torchs, label_smoothing=smoothing)
    taken = loss.adjusted(targets, outputs, context(weights))
    torch.testing.assert_close(loss.of(outputs, taken), wanted, rtol=error, atol=error)
    (gradient,) = torch.autograd.grad(wanted, outputs)
    slope = loss.slope(outputs, taken)
    torch.testing.assert_close(slope, gradient, rtol=error, atol=error)


def test_without_smoothing_and_weights_targets_stay_the_same_tensors() -> None:
    outputs, targets = problem(as_shares=False)
    assert CrossEntropy().adjusted(targets, outputs, context(None)) is targets


def test_targets_of_half_precision_outputs_are_smoothed_in_full() -> None:
    outputs, targets = problem(as_shares=False)
    found = CrossEntropy(0.1).adjusted(targets, outputs.bfloat16(), context(None))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.sum(dim=1), torch.ones(9))


def test_a_batch_of_labels_without_weight_teaches_nothing() -> None:
    outputs, _ = problem(as_shares=False)
    loss = CrossEntropy(0.1, "balanced")
    targets = loss.adjusted(torch.full((9,), 2), outputs, context())
    assert float(loss.of(outputs, targets).detach()) == 0
    assert not loss.slope(outputs, targets).any()


# -- the weights ----------------------------------------------------------------------------------


def of_labels(*labels: int) -> Samples:
    return Samples(np.zeros((len(labels), 1), np.float32), np.array(labels))


def test_balanced_weights_are_scikit_learns_of_the_classes_that_are_present() -> None:
    found = class_weights("balanced", of_labels(0, 0, 0, 2, 3, 3), 5)
    np.testing.assert_allclose(found, [6 / 9, 0, 6 / 3, 6 / 6, 0], rtol=1e-6)
    assert found.dtype == np.float32


@given(st.lists(st.integers(0, 4), min_size=1, max_size=50))
def test_balanced_classes_weigh_alike_and_samples_one_on_average(labels: list[int]) -> None:
    weights = class_weights("balanced", of_labels(*labels), 5).astype(np.float64)
    counts = np.bincount(labels, minlength=5)
    each = (weights * counts)[counts > 0]
    np.testing.assert_allclose(each, each[0], rtol=1e-5)
    assert each.sum() == pytest.approx(len(labels), rel=1e-5)
    assert not weights[counts == 0].any()


def test_balanced_weights_of_soft_targets_count_shares() -> None:
    samples = Samples(np.zeros((2, 1), np.float32), np.array([[0.5, 0.5], [1, 0]], np.float32))
    np.testing.assert_allclose(class_weights("balanced", samples, 2), [2 / 3, 2], rtol=1e-6)


def test_numbers_are_taken_as_they_are_one_for_each_class() -> None:
    assert class_weights((1.0, 0.5), of_labels(0), 2).tolist() == [1.0, 0.5]
    with pytest.raises(RecipeError, match="2 class weights, and the run has 3 classes") as caught:
        class_weights((1.0, 0.5), of_labels(0), 3)
    assert caught.value.code == "train.class_weights"


def test_weights_are_of_the_samples_that_a_job_brings() -> None:
    """Supplements count: a class that only they have is not without weight."""
    model, own, more = worlds.model("mlp"), worlds.samples(20), worlds.samples(20, 4)
    own = Samples(own.inputs, np.zeros(20, np.int64))
    loss = CrossEntropy(0.0, "balanced")
    brought = Job(model.weights(), loss, Schedule(batch_size=6), 1, samples=more)
    plain = Job(model.weights(), loss, Schedule(batch_size=6), 1)
    trainer = Trainer(model, "cpu")
    first, second = trainer.train(brought, own).weights, trainer.train(plain, more).weights
    assert all(np.array_equal(first[name], second[name]) for name in first)


def test_a_device_without_a_class_still_trains_and_evaluation_does_not_change() -> None:
    model, some = worlds.model("mlp"), worlds.samples(30)
    data = Samples(some.inputs, np.where(some.targets == 2, 1, some.targets))
    trainer = Trainer(model, "cpu")
    job = worlds.job(model, objective=CrossEntropy(0.1, "balanced"))
    trained = trainer.train(job, data)
    logits = torch.from_numpy(trainer.predict(trained.weights, data.inputs))
    plain = functional.cross_entropy(logits, torch.from_numpy(data.targets))
    assert trainer.evaluate(trained.weights, data).loss == pytest.approx(float(plain), rel=1e-5)


# -- objectives around the loss -------------------------------------------------------------------


def mixing(loss: CrossEntropy) -> list[Mixing]:
    return [
        LocalMixObjective(0.7, loss),
        NaiveMixObjective(0.2, loss),
        NaiveMixObjective(0.0, loss),
        GlobalMixObjective(0.7, loss=loss),
        FedMixObjective(0.3, loss=loss),
        FedMixObjective(0.4, "lam(1-lam)", loss, "mixed"),
        FedMixObjective(0.0, loss=loss),
    ]


def with_weights(before: Context, classes: int) -> Context:
    weights = torch.linspace(0.5, 1.5, classes)
    return Context(before.anchor, {**before.extra, CLASS_WEIGHTS: weights}, before.draws)


@pytest.mark.parametrize("loss", ADJUSTED, ids=str)
def test_every_objective_tells_which_weights_its_loss_needs(loss: CrossEntropy) -> None:
    for inner in mixing(loss):
        for each in (inner, Proximal(inner, 0.1), ManifoldMixing(inner, usual=loss)):
            assert capabilities.class_weights(each) == loss.class_weights
    assert capabilities.class_weights(CrossEntropy(0.1)) == "none"


@pytest.mark.parametrize("number", range(7))
def test_mixing_is_the_mixture_of_torchs_losses(number: int) -> None:
    """The first two terms, (1-λ) ℓ(f(U), Y) + λ ℓ(f(U), Z), and the third by its definition."""
    loss = CrossEntropy(0.3, "balanced")
    model, objective = a_model("mlp", (5,), 3, hidden=[]), mixing(loss)[number]
    batch = a_batch(model, 6)
    seen = with_weights(a_context(model, objective, 6), model.classes)
    params = params_of(model)
    mixed = objective.mixed(batch, seen)
    inputs = mixed.inputs.clone().requires_grad_()
    logits = model.forward(params, inputs)

    def torchs(targets: torch.Tensor) -> torch.Tensor:
        weights, smoothing = seen.extra[CLASS_WEIGHTS], loss.label_smoothing
        return functional.cross_entropy(logits, targets, weights, label_smoothing=smoothing)

    own = mixed.own if mixed.other is None else soft(mixed.own, logits)
    wanted = torchs(own)
    if mixed.change is not None:
        (slope,) = torch.autograd.grad(wanted, inputs, retain_graph=True)
        wanted = wanted + mixed.factor * (slope * mixed.change).sum()
    if mixed.other is not None:
        other = soft(mixed.other, logits).expand(len(logits), -1)
        wanted = wanted + mixed.share * (torchs(other) - torchs(own))
    found = objective(model.forward, params, batch, seen)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(native().library is None, reason=native().reason or "built")
@pytest.mark.parametrize("number", range(8))
def test_the_kernels_loss_and_gradients_are_torchs(number: int) -> None:
    loss = CrossEntropy(0.3, "balanced")
    model = a_model("cnn", (3, 13, 17), 7, width=5, hidden=9)
    every: list[Objective] = [*mixing(loss), loss]
    objective = every[number]
    seen = with_weights(a_context(model, objective, 6), model.classes)
    given_ = params_of(model), a_batch(model, 6), seen
    assert_close(by_chain(model, objective, *given_), exactly(model, objective, *given_))


@pytest.mark.parametrize("number", [1, 3, 5])
def test_a_stack_mixes_adjusted_targets_as_each_client_does(number: int) -> None:
    model = worlds.model("mlp")
    model.module.double()
    objective = mixing(CrossEntropy(0.2, "balanced"))[number]
    extra = {name: part.astype(np.float64) for name, part in an_extra(model).items()}
    data = [worlds.samples(size, seed) for seed, size in enumerate((13, 6, 9))]
    schedule = Schedule(2, 6, 0.05, optimizer="adamw", epsilon=1e-3, max_gradient_norm=0.5)
    jobs = [Job(model.weights(), objective, schedule, seed, extra) for seed in range(3)]
    assert_alike(model, jobs, data, error=1e-11)


def test_both_updates_of_hidden_mixing_are_adjusted() -> None:
    model, data = worlds.model("mlp", hidden=[6]), worlds.samples(24)
    _, decoder = model.halves(1)
    rng = np.random.default_rng(2)
    hidden = rng.standard_normal((4, *decoder.shape)).astype(np.float32)
    extra = {"inputs": hidden, "targets": np.eye(3, dtype=np.float32)[[0, 1, 2, 0]]}

    def after(mixed: CrossEntropy, usual: CrossEntropy) -> Tensors:
        objective = ManifoldMixing(NaiveMixObjective(0.2, mixed), usual=usual)
        job = Job(model.weights(), objective, Schedule(batch_size=6), 1, extra)
        return Trainer(model, "cpu").train(job, data).weights

    plain, loss = CrossEntropy(), CrossEntropy(0.3, "balanced")
    results = [after(plain, plain), after(loss, loss), after(plain, loss)]
    found = {tuple(np.concatenate([part.ravel() for part in each.values()])) for each in results}
    assert len(found) == 3


@pytest.mark.parametrize("raw", [False, True])
def test_mixing_behind_an_embedding_is_weighted(raw: bool) -> None:
    section = ModelSection.model_validate({"name": "lstm", "hidden": 5, "embedding": 3})
    model, rng = build(section, (4,), 3, 1), np.random.default_rng(1)
    tokens = rng.integers(0, 3, (4, 4))
    inputs = tokens if raw else np.eye(3, dtype=np.float32)[tokens]
    extra = {"inputs": inputs, "targets": np.eye(3, dtype=np.float32)[[0, 1, 2, 0]]}
    data = Samples(rng.integers(0, 3, (24, 4)), rng.integers(0, 3, 24))

    def after(weights: tuple[float, ...]) -> Tensors:
        objective = ManifoldMixing(NaiveMixObjective(0.2, CrossEntropy(0.0, weights)))
        objective = replace(objective, usual=CrossEntropy(0.0, weights))
        job = Job(model.weights(), objective, Schedule(batch_size=6), 1, extra)
        return Trainer(model, "cpu").train(job, data).weights

    one, other = after((1.0, 1.0, 1.0)), after((1.0, 3.0, 0.2))
    assert all(not np.array_equal(one[name], other[name]) for name in one)

"""Mixing in the compiled chain: torch's loss and gradients, and the formulas', up to rounding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from edgefed.learn.base.types import (
    Batch,
    Context,
    Forward,
    Job,
    Objective,
    Params,
    Samples,
    Schedule,
)
from edgefed.learn.compiled.compiled_chain import chain_of
from edgefed.learn.modeling.model import Model
from edgefed.learn.networks.blocks import ConvPoolReLU
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.fed_mix import FedMixObjective
from edgefed.learn.objectives.global_mix import GlobalMixObjective
from edgefed.learn.objectives.linear_term import Linear, shifts
from edgefed.learn.objectives.local_mix import LocalMixObjective
from edgefed.learn.objectives.naive_mix import NaiveMixObjective
from edgefed.learn.objectives.proximal import Proximal, centred
from edgefed.learn.objectives.squared_error import SquaredError
from edgefed.learn.steps import capabilities
from edgefed.learn.steps.capabilities import Phase
from edgefed.learn.training.trainer import Trainer
from edgefed.native.library import native
from tests.learn.compiled.test_chain import MODELS, a_batch, a_model, params_of
from tests.support.pairwise import pairwise

pytestmark = pytest.mark.skipif(native().library is None, reason=native().reason or "built")

Found = tuple[torch.Tensor, list[torch.Tensor]]

MIXING: list[Objective] = [
    LocalMixObjective(0.7),
    NaiveMixObjective(0.2),
    GlobalMixObjective(0.7),
    GlobalMixObjective(ratio=0.2),
    FedMixObjective(0.05),
    FedMixObjective(0.4, "lam(1-lam)"),
    FedMixObjective(0.3, labels="mixed"),
]
SHIFTED: list[Objective] = [
    Linear(CrossEntropy()),
    Linear(Proximal(FedMixObjective(0.05), 0.3)),
    Proximal(Linear(CrossEntropy()), 0.2, has_centre=True),
]
OBJECTIVES = [CrossEntropy(), *MIXING, *SHIFTED]


def an_extra(model: Model, count: int = 5, seed: int = 4) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "inputs": rng.standard_normal((count, *model.shape), dtype=np.float32),
        "targets": rng.dirichlet(np.ones(model.classes), count).astype(np.float32),
    }


def a_context(model: Model, objective: Objective, size: int, seed: int = 5) -> Context:
    extra = an_extra(model)
    drawn = capabilities.draw(objective, np.random.default_rng(seed), size, extra)
    extra |= shifts({name: 0.5 * part - 0.01 for name, part in model.weights().items()})
    extra |= centred({name: 1.5 * part + 0.02 for name, part in model.weights().items()})
    tensors = {name: torch.from_numpy(array) for name, array in extra.items()}
    anchor = {name: torch.from_numpy(part) + 0.1 for name, part in model.weights().items()}
    return Context(anchor, tensors, {name: torch.as_tensor(part) for name, part in drawn.items()})


def by_chain(
    model: Model, objective: Objective, params: Params, batch: Batch, context: Context
) -> Found:
    names = model.parameter_names
    chain = chain_of(model, Phase(objective, names), params, "fp32", len(batch.inputs) + 3)
    assert chain is not None
    got = chain.gradients(batch, names, context)
    assert got is not None
    return got[0], [each.clone() for each in got[1]]


def exactly(
    model: Model, objective: Objective, params: Params, batch: Batch, context: Context
) -> Found:
    """Return the loss and gradients in float64."""

    def wide(tensors: Any) -> dict[str, torch.Tensor]:
        return {k: t.detach().double() if t.is_floating_point() else t for k, t in tensors.items()}

    doubled = {name: part.requires_grad_() for name, part in wide(params).items()}
    (inputs, targets) = wide({0: batch.inputs, 1: batch.targets}).values()
    around = Context(wide(context.anchor), wide(context.extra), wide(context.draws))
    model.module.double()
    try:
        loss = objective(model.forward, doubled, Batch(inputs, targets), around)
        weights = [doubled[name] for name in model.parameter_names]
        return loss.detach(), list(torch.autograd.grad(loss, weights))
    finally:
        model.module.float()


def assert_close(one: Found, other: Found, tolerance: float = 2e-5) -> None:
    """Assert that loss and gradients agree, relative to the largest gradient of each weight."""
    torch.testing.assert_close(one[0].double(), other[0].double(), rtol=1e-5, atol=1e-5)
    largest = max(float(part.abs().max()) for part in other[1])
    for mine, theirs in zip(one[1], other[1], strict=True):
        assert float((mine.double() - theirs.double()).abs().max()) <= tolerance * max(largest, 1)


@pytest.mark.parametrize(("built", "objective", "size"), pairwise(MODELS, OBJECTIVES, [1, 4, 20]))
def test_loss_and_gradients_are_torchs(
    built: tuple[str, tuple[int, ...], int, dict[str, Any]], objective: Objective, size: int
) -> None:
    name, shape, classes, more = built
    model = a_model(name, shape, classes, **more)
    given_ = params_of(model), a_batch(model, size), a_context(model, objective, size)
    assert_close(by_chain(model, objective, *given_), exactly(model, objective, *given_))


@st.composite
def networks(draw: Any) -> Model:
    """Convolutions, or none, and dense layers, of any sizes that the kernels take."""
    whole = st.integers
    layers: list[nn.Module] = []
    images, rows = st.tuples(whole(1, 3), whole(9, 15), whole(9, 15)), st.tuples(whole(1, 50))
    shape = draw(st.one_of(images, rows))
    channels, (height, width) = shape[0], shape[1:] or (1, 1)
    for _ in range(draw(whole(0, 2)) if shape[1:] else 0):
        kernel, padding, after = draw(st.sampled_from([3, 5])), draw(whole(1, 3)), draw(whole(1, 9))
        if min(height, width) + 2 * padding <= kernel:
            break
        layers.append(ConvPoolReLU(channels, after, kernel, padding))
        channels = after
        height, width = ((size + 2 * padding - kernel + 1) // 2 for size in (height, width))
    values, classes = channels * height * width, draw(whole(2, 40))
    layers.append(nn.Flatten())
    for size in draw(st.lists(whole(1, 70), max_size=2)):
        layers += [nn.Linear(values, size), nn.ReLU()]
        values = size
    return Model(nn.Sequential(*layers, nn.Linear(values, classes)), shape, classes)


@settings(max_examples=40, deadline=None)
@given(networks(), st.sampled_from(OBJECTIVES), st.integers(1, 33), st.integers(0, 2**16))
def test_networks_of_any_shape(model: Model, objective: Objective, size: int, seed: int) -> None:
    chance = torch.Generator().manual_seed(seed)
    weights = {
        name: 0.5 * torch.randn(part.shape, generator=chance)
        for name, part in model.weights().items()
    }
    params = {name: part.requires_grad_() for name, part in weights.items()}
    inputs = torch.randn(size, *model.shape, generator=chance)
    batch = Batch(inputs, torch.randint(model.classes, (size,), generator=chance))
    given_ = params, batch, a_context(model, objective, size, seed)
    assert_close(by_chain(model, objective, *given_), exactly(model, objective, *given_), 1e-4)


@pytest.mark.parametrize("objective", [CrossEntropy(), *MIXING, SHIFTED[0]])
@pytest.mark.parametrize("mu", [0.0, 0.3])
def test_the_proximal_term_goes_around_each(objective: Any, mu: float) -> None:
    model = a_model("cnn", (1, 8, 8), 10)
    around = Proximal(objective, mu)
    given_ = params_of(model), a_batch(model, 8), a_context(model, around, 8)
    assert_close(by_chain(model, around, *given_), exactly(model, around, *given_))


@pytest.mark.parametrize(
    ("objective", "kind", "name"),
    pairwise(OBJECTIVES, ["zeros", "any sum", "one-hot"], ["cnn", "mlp"]),
)
def test_targets_of_any_sum(objective: Objective, kind: str, name: str) -> None:
    model = a_model(name, (1, 8, 8), 10)
    batch, context = a_batch(model, 8), a_context(model, objective, 8)
    soft = functional.one_hot(batch.targets, 10).float()
    if kind == "any sum":
        soft = torch.randn(8, 10, generator=torch.Generator().manual_seed(1))
        context.extra["targets"].mul_(3)
    if kind == "zeros":
        soft[::2] = 0
        context.extra["targets"].zero_()
    given_ = params_of(model), Batch(batch.inputs, soft), context
    ours = by_chain(model, objective, *given_)
    assert_close(ours, exactly(model, objective, *given_))
    if kind == "one-hot":
        assert_close(ours, by_chain(model, objective, given_[0], batch, context), 1e-6)


@pytest.mark.parametrize("objective", [FedMixObjective(0.0), NaiveMixObjective(0.0)])
def test_without_a_share_it_is_cross_entropy_bit_for_bit(objective: Objective) -> None:
    model = a_model("lenet5", (1, 28, 28), 10)
    given_ = params_of(model), a_batch(model, 9), a_context(model, objective, 9)
    loss, gradients = by_chain(model, CrossEntropy(), *given_)
    ours, mixed = by_chain(model, objective, *given_)
    assert torch.equal(loss, ours)
    assert all(torch.equal(one, other) for one, other in zip(gradients, mixed, strict=True))


@pytest.mark.parametrize("objective", MIXING)
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
def test_inputs_may_lie_in_any_order(objective: Objective, memory: Any) -> None:
    model = a_model("lenet5", (3, 32, 32), 10)
    params, batch, context = params_of(model), a_batch(model, 6), a_context(model, objective, 6)
    turned = batch.inputs.transpose(2, 3).contiguous().transpose(2, 3)
    extra = {**context.extra, "inputs": context.extra["inputs"].to(memory_format=memory)}
    wanted = by_chain(model, objective, params, batch, context)
    for inputs in (batch.inputs.to(memory_format=memory), turned):
        given_ = params, Batch(inputs, batch.targets), replace(context, extra=extra)
        assert_close(by_chain(model, objective, *given_), wanted, 1e-6)


@pytest.mark.parametrize("where", ["batch", "entry", "targets"])
@pytest.mark.parametrize("name", ["cnn", "mlp"])
def test_what_is_no_number_makes_a_loss_that_is_none(where: str, name: str) -> None:
    model, objective = a_model(name, (1, 8, 8), 10), FedMixObjective(0.2)
    params, batch, context = params_of(model), a_batch(model, 8), a_context(model, objective, 8)
    spoilt = {"batch": batch.inputs, "entry": context.extra["inputs"]}
    spoilt.get(where, context.extra["targets"]).fill_(float("nan"))
    assert not torch.isfinite(by_chain(model, objective, params, batch, context)[0])


@pytest.mark.parametrize(
    "objective",
    [each for each in MIXING if getattr(each, "labels", "own") == "own"],  # mixed are no labels
)
def test_a_label_that_is_no_class_reaches_no_memory(objective: Objective) -> None:
    model = a_model("cnn", (1, 8, 8), 10)
    params, batch, context = params_of(model), a_batch(model, 8), a_context(model, objective, 8)
    batch.targets[2] = 10
    with pytest.raises(ValueError, match="not one of the classes"):
        by_chain(model, objective, params, batch, context)


class Halved(FedMixObjective):
    """A mixing with a loss of its own."""

    def __call__(
        self, forward: Forward, params: Params, batch: Batch, context: Context
    ) -> torch.Tensor:
        return super().__call__(forward, params, batch, context) / 2


def test_an_objective_with_a_call_of_its_own_is_torchs() -> None:
    model = a_model("cnn", (1, 8, 8), 10)
    phase = Phase(Halved(0.1), model.parameter_names)
    assert chain_of(model, phase, params_of(model), "fp32", 8) is None


def test_other_losses_and_what_does_not_fit_are_torchs() -> None:
    model = a_model("cnn", (1, 8, 8), 10)
    params, names = params_of(model), model.parameter_names
    other = FedMixObjective(0.1, loss=SquaredError())
    assert chain_of(model, Phase(other, names), params, "fp32", 8) is None
    chain = chain_of(model, Phase(FedMixObjective(0.1), names), params, "fp32", 8)
    assert chain is not None
    batch, context = a_batch(model, 8), a_context(model, FedMixObjective(0.1), 8)
    assert chain.gradients(batch, names, context) is not None
    for name, wrong in [
        ("inputs", context.extra["inputs"][..., :7]),
        ("targets", context.extra["targets"][:, :9]),
    ]:
        extra = {**context.extra, name: wrong}
        assert chain.gradients(batch, names, replace(context, extra=extra)) is None


PLAIN = Schedule(epochs=2, batch_size=20, learning_rate=0.05)


@pytest.mark.parametrize(
    ("objective", "schedule", "frozen"),
    [
        (CrossEntropy(), PLAIN, frozenset[str]()),
        (CrossEntropy(), replace(PLAIN, momentum=0.9, weight_decay=0.01), {"conv1.weight"}),
        (GlobalMixObjective(0.7), PLAIN, frozenset[str]()),
        (Proximal(FedMixObjective(0.1), 0.2), PLAIN, frozenset[str]()),
    ],
)
def test_a_training_ends_where_torchs_does(
    objective: Objective, schedule: Schedule, frozen: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    inputs = rng.standard_normal((50, 1, 28, 28), dtype=np.float32)
    samples = Samples(inputs, rng.integers(0, 10, 50))
    model = a_model("lenet5", (1, 28, 28), 10)
    job = Job(model.weights(), objective, schedule, 4, an_extra(model), frozen=frozenset(frozen))
    quick, again = (Trainer(model, "cpu").train(job, samples) for _ in range(2))
    monkeypatch.setattr("edgefed.learn.training.trainer.chain_of", lambda *_: None)
    slow = Trainer(model, "cpu").train(job, samples)
    assert quick.steps == slow.steps
    assert quick.loss == pytest.approx(slow.loss, rel=1e-5)
    for name, weights in quick.weights.items():
        assert weights.tobytes() == again.weights[name].tobytes()
        np.testing.assert_allclose(weights, slow.weights[name], rtol=1e-4, atol=1e-5)
    for name in frozen:
        assert quick.weights[name].tobytes() == job.weights[name].tobytes()

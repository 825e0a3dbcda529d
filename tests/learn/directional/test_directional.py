"""Derivatives along a direction: both ways, every network, and nothing that is silently wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import vmap
from torch.nn import functional

from edgefed.config.recipes.recipe import ModelSection
from edgefed.learn.base.types import Batch, Params
from edgefed.learn.directional import directional_derivative
from edgefed.learn.directional.directional_derivative import DerivativeMethod, along, way_of
from edgefed.learn.directional.dual_numbers import Dual, NotPiecewiseLinearError
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build
from edgefed.learn.objectives.fed_mix import FedMixObjective
from tests.learn.mixing import CLASSES, World, assert_equal, literal

PIECEWISE_LINEAR: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "lenet5": ("lenet5", (1, 16, 16), {}),
    "lenet5 padded": ("lenet5", (3, 17, 15), {"padding": 2}),
    "lenet5-wide": ("lenet5-wide", (1, 16, 16), {"channels": [2, 3], "hidden": 6}),
    "cnn": ("cnn", (2, 9, 8), {"width": 3, "hidden": 8, "dropout": 0.3}),
    "vgg9 fedmix": ("vgg9", (3, 8, 8), {"dropout_layout": "fedmix"}),
    "vgg9 fedma": ("vgg9", (3, 8, 8), {"dropout_layout": "fedma"}),
    "mlp": ("mlp", (7,), {"hidden": [9, 7], "dropout": 0.4}),
    "linear": ("mlp", (7,), {"hidden": []}),
}


def world(name: str) -> World:
    network, shape, settings = PIECEWISE_LINEAR[name]
    return World(network, shape, batch=3, **settings)


def by(way: DerivativeMethod, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all derivatives be taken one way."""
    monkeypatch.setattr(directional_derivative, "way_of", lambda *_: way)


@pytest.mark.parametrize("name", PIECEWISE_LINEAR)
def test_both_ways_agree_with_the_same_dropout(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = world(name)
    context = here.context()
    change = context.extra["inputs"][:1]
    assert (
        way_of(here.model.forward, here.params, here.batch.inputs, change)
        is DerivativeMethod.FORWARDS
    )
    chosen = here.both(FedMixObjective(0.3), context)
    by(DerivativeMethod.FORWARDS, monkeypatch)
    forwards = here.both(FedMixObjective(0.3), context)
    by(DerivativeMethod.BACKWARDS, monkeypatch)
    backwards = here.both(FedMixObjective(0.3), context)
    assert_equal(forwards, backwards, 1e-10)
    assert chosen[0] == forwards[0]


@pytest.mark.parametrize("name", ["lenet5", "mlp"])
def test_a_change_of_its_own_for_each_sample(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = world(name)
    changes = torch.randn_like(here.batch.inputs)

    def gradients(way: DerivativeMethod) -> tuple[float, dict[str, torch.Tensor]]:
        by(way, monkeypatch)
        torch.manual_seed(2)
        outputs, found = along(
            here.model.forward, here.params, here.batch.inputs, changes, lambda z: z.sin()
        )
        loss = found + outputs.square().sum()
        return loss.item(), here.gradients(loss)

    assert_equal(gradients(DerivativeMethod.FORWARDS), gradients(DerivativeMethod.BACKWARDS), 1e-10)


@pytest.mark.parametrize("name", ["lenet5", "cnn", "vgg9 fedmix", "mlp"])
def test_both_ways_agree_under_vmap(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = world(name)
    here.model.module.eval()
    context = here.context()
    stacked = {
        key: torch.stack([part.detach(), 0.5 * part.detach()]).requires_grad_()
        for key, part in here.params.items()
    }

    def loss(params: Params) -> torch.Tensor:
        return FedMixObjective(0.3)(here.model.forward, params, here.batch, context)

    def gradients(way: DerivativeMethod) -> tuple[float, dict[str, torch.Tensor]]:
        by(way, monkeypatch)
        losses = vmap(loss, randomness="different")(stacked)
        found = torch.autograd.grad(losses.sum(), list(stacked.values()))
        return losses.sum().item(), dict(zip(stacked, found, strict=True))

    forwards = gradients(DerivativeMethod.FORWARDS)
    assert_equal(forwards, gradients(DerivativeMethod.BACKWARDS), 1e-10)
    here.params = {key: part[1].detach().requires_grad_() for key, part in stacked.items()}
    alone = here.both(FedMixObjective(0.3), context)[1]
    for key, part in forwards[1].items():
        torch.testing.assert_close(part[1], alone[key], rtol=1e-9, atol=1e-12)


def test_under_vmap_the_way_is_found_out_as_well() -> None:
    here, seen = world("cnn"), []

    def loss(params: Params) -> torch.Tensor:
        inputs = here.batch.inputs
        seen.append(way_of(here.model.forward, params, inputs, inputs[:1]))
        return here.model.forward(params, inputs).sum()

    stacked = {key: torch.stack([part, part]).detach() for key, part in here.params.items()}
    vmap(loss, randomness="different")(stacked)
    assert seen == [DerivativeMethod.FORWARDS]


@pytest.mark.parametrize("name", ["lenet5", "lenet5 padded", "cnn", "vgg9 fedmix"])
def test_single_precision_with_its_own_kernels_is_near_the_formula(name: str) -> None:
    here = world(name)
    here.model.module.eval()
    expected = literal(here, 0.2)
    wanted = here.gradients(expected)
    here.model.module.float()
    here.params = {key: part.detach().float().requires_grad_() for key, part in here.params.items()}
    inputs = here.batch.inputs.float().to(memory_format=torch.channels_last)
    here.batch = Batch(inputs, here.batch.targets)
    here.extra = {key: array.astype(np.float32) for key, array in here.extra.items()}
    assert_equal((expected.item(), wanted), here.both(FedMixObjective(0.2)), 2e-5)


def residual(norm: str) -> World:
    return World("resnet20", (3, 8, 8), batch=3, norm=norm)


def test_group_normalisation_goes_backwards_and_is_the_formula() -> None:
    here = residual("group")
    inputs = here.batch.inputs
    assert way_of(here.model.forward, here.params, inputs, inputs[:1]) is DerivativeMethod.BACKWARDS
    expected = literal(here, 0.2)
    assert_equal(here.both(FedMixObjective(0.2)), (expected.item(), here.gradients(expected)), 1e-9)


def test_batch_normalisation_counts_its_statistics_once() -> None:
    here = residual("batch")
    here.both(FedMixObjective(0.2))
    counts = [int(part) for name, part in here.params.items() if name.endswith("tracked")]
    assert counts and set(counts) == {1}


def lstm() -> World:
    made = build(ModelSection(name="lstm", hidden=5, embedding=3), (4,), CLASSES, 1)
    made.module.double()
    _, decoder = made.halves(1)
    return World(model=decoder, shape=(4, 3), batch=3)


def test_an_lstm_goes_backwards_and_is_the_formula() -> None:
    here = lstm()
    inputs = here.batch.inputs
    assert way_of(here.model.forward, here.params, inputs, inputs[:1]) is DerivativeMethod.BACKWARDS
    expected = literal(here, 0.2)
    assert_equal(
        here.both(FedMixObjective(0.2)), (expected.item(), here.gradients(expected)), 1e-10
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_on_a_gpu_an_lstm_leaves_cudnn_aside() -> None:
    here = lstm()
    here.model.module.cuda()
    params = {name: part.detach().cuda().requires_grad_() for name, part in here.params.items()}
    inputs = here.batch.inputs.cuda()
    way = way_of(here.model.forward, params, inputs, inputs[:1])
    assert way is DerivativeMethod.BACKWARDS_WITHOUT_CUDNN
    _, found = along(here.model.forward, params, inputs, inputs[:1], lambda z: z.sin())
    gradients = torch.autograd.grad(found, list(params.values()))
    assert all(bool(part.isfinite().all()) for part in gradients)


def test_the_way_is_found_out_once_and_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    here = world("cnn")
    asked = []
    really = directional_derivative._find_out

    def counted(*given: Any) -> DerivativeMethod | None:
        asked.append(1)
        return really(*given)

    monkeypatch.setattr(directional_derivative, "_find_out", counted)
    before = {name: part.clone() for name, part in here.params.items()}
    torch.manual_seed(5)
    here.model.forward(here.params, here.batch.inputs)
    expected = torch.rand(1)
    context = here.context()
    for _ in range(2):
        torch.manual_seed(5)
        FedMixObjective(0.1)(here.model.forward, here.params, here.batch, context)
        assert torch.equal(torch.rand(1), expected)
    assert len(asked) == 1
    assert all(torch.equal(part, before[name]) for name, part in here.params.items())


class Moody(nn.Module):
    """Is piecewise linear on small batches only."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(7, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.last(inputs if len(inputs) < 3 else inputs.tanh())
        return scores


def test_a_network_that_turns_out_otherwise_goes_backwards_from_then_on() -> None:
    model = Model(Moody(), (7,), CLASSES)
    here = World(model=model, shape=(7,), batch=5)
    ours = here.both(FedMixObjective(0.2))
    inputs = here.batch.inputs
    assert way_of(model.forward, here.params, inputs, inputs[:1]) is DerivativeMethod.BACKWARDS
    assert_equal(ours, here.both(FedMixObjective(0.2)))
    at = (0.8 * inputs).requires_grad_()
    outputs = model.forward(here.params, at)
    (slope,) = torch.autograd.grad(
        functional.cross_entropy(outputs, here.batch.targets), at, create_graph=True
    )
    own = torch.eye(CLASSES).double()[here.batch.targets]
    other, target = (torch.from_numpy(here.extra[name][0]) for name in ("inputs", "targets"))
    expected = functional.cross_entropy(outputs, 0.8 * own + 0.2 * target)
    expected = expected + 0.2 * (slope * other).sum()
    assert_equal(ours, (expected.item(), here.gradients(expected)))


class Odd(nn.Module):
    """Does one thing that is not known to be piecewise linear, between two linear layers."""

    def __init__(self, odd: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first = nn.Linear(7, 8)
        self.last = nn.Linear(8, CLASSES)
        self.odd = odd

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.last(self.odd(self.first(inputs)))
        return scores


ODD: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": functional.gelu,
    "softmax": lambda x: x.softmax(dim=1),
    "product": lambda x: x * x,
    "mean of the batch": lambda x: x - x.mean(dim=0),
    "normalised": lambda x: functional.layer_norm(x, (8,)),
    "clamped": lambda x: x.clamp(-0.1, 0.1),
    "sliced": lambda x: x[:1] + x,
    "batch flattened": lambda x: functional.relu(x.flatten()).reshape(-1, 8).tanh(),
    "constant added": lambda x: x.abs() + torch.ones(8, dtype=x.dtype),
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_not_known_goes_backwards_and_is_the_formula(name: str) -> None:
    torch.manual_seed(1)
    model = Model(Odd(ODD[name]), (7,), CLASSES)
    here = World(model=model, shape=(7,), batch=1)
    way = way_of(model.forward, here.params, here.batch.inputs, here.batch.inputs[:1])
    assert way is DerivativeMethod.BACKWARDS
    expected = literal(here, 0.2)
    assert_equal(
        here.both(FedMixObjective(0.2)), (expected.item(), here.gradients(expected)), 1e-10
    )


KNOWN: dict[str, Callable[[Any], Any]] = {
    "relu": functional.relu,
    "method relu": lambda x: x.relu(),
    "in place": lambda x: functional.relu(x, inplace=True) + x,
    "max pool": lambda x: functional.max_pool2d(x, 3, 2, 1),
    "ceil": lambda x: functional.max_pool2d(x, 2, ceil_mode=True),
    "overlapping": nn.MaxPool2d(3, stride=1),
    "average": lambda x: functional.avg_pool2d(x, 2),
    "adaptive": nn.AdaptiveAvgPool2d(2),
    "convolution": nn.Conv2d(3, 4, 3, stride=2, padding=1, groups=1).double(),
    "depthwise": nn.Conv2d(3, 6, 3, dilation=2, groups=3, bias=False).double(),
    "flatten": lambda x: x.flatten(1),
    "function flatten": lambda x: torch.flatten(x, 2),
    "reshape": lambda x: x.reshape(x.size(0), -1),
    "view": lambda x: x.contiguous().view(-1, 3, 49),
    "function reshape": lambda x: torch.reshape(x, (len(x), 147)),
    "residual": lambda x: functional.relu(x) + x,
    "scaled sum": lambda x: torch.add(functional.relu(x), x, alpha=0.5),
}


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("shared", [False, True])
def test_what_is_known_has_the_derivative_of_torch(name: str, shared: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(2, 3, 7, 7, generator=generator, dtype=torch.float64)
    change = torch.randn(1 if shared else 2, 3, 7, 7, generator=generator, dtype=torch.float64)
    function = KNOWN[name]
    dual = function(Dual(inputs.clone(), change.clone()))
    wide = change.expand_as(inputs).contiguous()
    jvp: Any = torch.autograd.functional.jvp
    outputs, expected = jvp(lambda at: function(at.clone()), inputs, wide)
    assert isinstance(dual, Dual)
    assert (len(dual), dual.ndim, dual.shape) == (2, outputs.dim(), outputs.shape)
    torch.testing.assert_close(dual.primal, outputs, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(dual.wide(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "function",
    [
        torch.exp,
        lambda x: x.mean(),
        lambda x: x[0],
        lambda x: x * 2.0,
        lambda x: x + 1.0,
        lambda x: functional.linear(torch.ones(2, 7, dtype=torch.float64), x.primal, x),
        lambda x: functional.max_pool2d(x, 2, return_indices=True),
        lambda x: x.view(torch.int64),
        lambda x: x.reshape(-1),
        lambda x: x.flatten(),
        lambda x: bool(x > 0),
    ],
)
def test_what_is_not_known_is_refused(function: Callable[[Any], Any]) -> None:
    dual = Dual(torch.ones(2, 3, 7, 7), torch.ones(1, 3, 7, 7))
    with pytest.raises((NotPiecewiseLinearError, TypeError)):
        function(dual)


def test_values_that_are_no_numbers_stay_so() -> None:
    here = world("cnn")
    here.batch.inputs[0, 0, 0, 0] = float("nan")
    assert here.loss(FedMixObjective(0.2)).isnan()

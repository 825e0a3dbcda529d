"""Derivatives of networks of a user's own: in-place operations, views, and a ``forward`` that can
tell what carries a change from a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import nn
from torch.func import vmap
from torch.nn import functional

from edgefed.learn.base.types import Params
from edgefed.learn.directional.directional_derivative import DerivativeMethod, way_of
from edgefed.learn.directional.dual_numbers import Dual, NotPiecewiseLinearError, carry
from edgefed.learn.modeling.model import Model
from edgefed.learn.objectives.fed_mix import FedMixObjective
from tests.learn.mixing import CLASSES, World, assert_equal, literal

Between = Callable[[Any], Any]


class Own(nn.Module):
    """Does something between two linear layers."""

    def __init__(self, between: Between) -> None:
        super().__init__()
        self.first = nn.Linear(7, 8)
        self.last = nn.Linear(8, CLASSES)
        self.between = between

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.last(self.between(self.first(inputs)))
        return scores


def own(module: nn.Module, batch: int = 4) -> World:
    torch.manual_seed(1)
    for part in module.children():
        if isinstance(part, nn.Linear):
            part.reset_parameters()
    return World(model=Model(module, (7,), CLASSES), shape=(7,), batch=batch)


def way(world: World) -> DerivativeMethod:
    inputs = world.batch.inputs
    change = torch.from_numpy(world.extra["inputs"][:1])
    return way_of(world.model.forward, world.params, inputs, change)


def assert_is_the_formula(world: World) -> None:
    expected = literal(world, 0.2)
    wanted = expected.item(), world.gradients(expected)
    assert_equal(world.both(FedMixObjective(0.2)), wanted, 1e-10)


def added_in_place(x: Any) -> Any:
    y = x + x
    y += functional.relu(x)
    return y


def added_under_two_names(x: Any) -> Any:
    other = x
    x += functional.relu(x)
    return x + other


def added_by_method(x: Any) -> Any:
    x.add_(functional.relu(x), alpha=0.5)
    return x


def relu_under_two_names(x: Any) -> Any:
    return functional.relu(x, inplace=True) + x


def relu_by_method(x: Any) -> Any:
    x.relu_()
    return x


def relu_by_function(x: Any) -> Any:
    torch.relu_(x)
    return x


IN_PLACE: dict[str, Between] = {
    "+=": added_in_place,
    "+= under two names": added_under_two_names,
    "add_": added_by_method,
    "relu": relu_under_two_names,
    "relu_": relu_by_method,
    "torch.relu_": relu_by_function,
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_operations_go_forwards_and_are_the_formula(name: str) -> None:
    here = own(Own(IN_PLACE[name]))
    assert way(here) is DerivativeMethod.FORWARDS
    assert_is_the_formula(here)


def after_view(x: Any) -> Any:
    functional.relu(x.view(-1, 2, 4), inplace=True)
    return x


def after_reshape(x: Any) -> Any:
    functional.relu(torch.reshape(x, (len(x), 4, 2)), inplace=True)
    return x


def after_flatten(x: Any) -> Any:
    square = x.reshape(-1, 2, 4)
    functional.relu(square.flatten(1), inplace=True)
    return square.reshape(-1, 8)


def after_contiguous(x: Any) -> Any:
    functional.relu(x.contiguous(), inplace=True)
    return x


def before_a_view_is_read(x: Any) -> Any:
    square = x.view(-1, 2, 4)
    functional.relu(x, inplace=True)
    return square.flatten(1)


def added_to_a_view(x: Any) -> Any:
    square = x.view(-1, 2, 4)
    square += functional.relu(square)
    return x


def dropped_from_a_view(x: Any) -> Any:
    functional.dropout(x.view(-1, 2, 4), 0.0, inplace=True)
    functional.relu_(x.view(-1, 8))
    return x


VIEWED: dict[str, Between] = {
    "view": after_view,
    "reshape": after_reshape,
    "flatten": after_flatten,
    "contiguous": after_contiguous,
    "the other way round": before_a_view_is_read,
    "+=": added_to_a_view,
    "no dropout": dropped_from_a_view,
}


@pytest.mark.parametrize("name", VIEWED)
def test_in_place_operations_on_views_are_refused_and_are_the_formula(name: str) -> None:
    here = own(Own(VIEWED[name]))
    assert_refused(VIEWED[name])
    assert way(here) is DerivativeMethod.BACKWARDS
    assert_is_the_formula(here)


def assert_refused(between: Between) -> None:
    """Assert that it is refused, before any numbers are compared."""
    with pytest.raises(NotPiecewiseLinearError):
        carry(lambda _, at: between(at), {}, torch.ones(2, 8), torch.ones(1, 8))


@pytest.mark.parametrize("shape", ["view", "reshape", "flatten"])
def test_what_follows_from_a_view_may_be_changed_in_place(shape: str) -> None:
    layer = nn.Linear(8, 8)

    def between(x: Any) -> Any:
        square = x.view(-1, 2, 4)
        flat = {"view": square.view(-1, 8), "reshape": square.reshape(-1, 8)}
        return functional.relu(layer.double()(flat.get(shape, square.flatten(1))), inplace=True)

    here = own(Own(between))
    assert way(here) is DerivativeMethod.FORWARDS
    assert_is_the_formula(here)


def by_kind(x: Any) -> Any:
    return functional.relu(x) if isinstance(x, torch.Tensor) else x


def by_torch_s_question(x: Any) -> Any:
    return x if torch.is_tensor(x) else functional.relu(x)


TOLD_APART: dict[str, Between] = {"isinstance": by_kind, "is_tensor": by_torch_s_question}


@pytest.mark.parametrize("name", TOLD_APART)
def test_a_network_that_asks_for_the_kind_goes_backwards_and_is_the_formula(name: str) -> None:
    here = own(Own(TOLD_APART[name]))
    assert way(here) is DerivativeMethod.BACKWARDS
    assert_is_the_formula(here)


def caught(doing: Between, errors: tuple[type[Exception], ...] = (Exception,)) -> Between:
    """Return what does something, and ReLU if that fails."""

    def between(x: Any) -> Any:
        try:
            return doing(x)
        except errors:
            return functional.relu(x)

    return between


CAUGHT: dict[str, Between] = {
    "method": caught(lambda x: x.tanh()),
    "function": caught(torch.tanh),
    "product": caught(lambda x: x * 2.0, (TypeError, NotPiecewiseLinearError)),
    "sum": caught(lambda x: x + 1.0),
    "in place": caught(added_to_a_view),
    "item": caught(lambda x: x[:, [1, 0, 2, 3, 4, 5, 6, 7]]),
    "comparison": caught(lambda x: x if (x == 0).any() else functional.relu(x)),
    "argument": caught(lambda x: torch.add(x, x, out=torch.empty(2, 8))),
    "attribute": lambda x: x if hasattr(x, "requires_grad") else functional.relu(x),
}


@pytest.mark.parametrize("name", CAUGHT)
def test_a_refusal_that_is_caught_still_counts(name: str) -> None:
    here = own(Own(CAUGHT[name]))
    assert_refused(CAUGHT[name])
    assert way(here) is DerivativeMethod.BACKWARDS
    assert_is_the_formula(here)


def test_a_view_that_memory_does_not_allow_fails_as_with_a_tensor() -> None:
    values = torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last)
    dual = Dual(values, values[:1])
    for each in (values, dual):
        with pytest.raises(RuntimeError, match="view size is not compatible"):
            each.view(2, -1)
    assert dual.reshape(2, -1).shape == (2, 48)


class Detached(nn.Module):
    """Tells what carries a change from a tensor in its gradient, or by very little."""

    def __init__(self, detached: bool, apart: float) -> None:
        super().__init__()
        self.first = nn.Linear(7, 8)
        self.last = nn.Linear(8, CLASSES)
        self.detached = detached
        self.apart = apart

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        weight, given = self.last.weight, cast(object, inputs)
        if isinstance(given, Dual):
            weight = weight.detach() if self.detached else weight * (1 + self.apart)
        return functional.linear(functional.relu(self.first(inputs)), weight, self.last.bias)


@pytest.mark.parametrize(
    ("detached", "apart", "expected"),
    [
        (True, 0.0, DerivativeMethod.BACKWARDS),
        (False, 1e-7, DerivativeMethod.BACKWARDS),
        (False, 0.0, DerivativeMethod.FORWARDS),
    ],
)
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_gradients_are_compared_too_and_all_in_float64(
    detached: bool, apart: float, expected: DerivativeMethod, kind: torch.dtype
) -> None:
    here = own(Detached(detached, apart))
    here.params = {name: part.detach().to(kind) for name, part in here.params.items()}
    params = {name: part.requires_grad_() for name, part in here.params.items()}
    inputs = here.batch.inputs.to(kind)
    assert way_of(here.model.forward, params, inputs, inputs[:1].cos()) is expected


@pytest.mark.parametrize("between", [by_kind, functional.relu])
def test_under_vmap_both_ways_are_compared_as_well(between: Between) -> None:
    here = own(Own(between))
    expected = DerivativeMethod.BACKWARDS if between is by_kind else DerivativeMethod.FORWARDS
    stacked = {key: torch.stack([part, 2 * part]).detach() for key, part in here.params.items()}
    seen = []

    def loss(params: Params, inputs: torch.Tensor) -> torch.Tensor:
        seen.append(way_of(here.model.forward, params, inputs, inputs[:1]))
        return here.model.forward(params, inputs).sum()

    inputs = torch.stack([here.batch.inputs, here.batch.inputs], dim=1)
    vmap(loss, in_dims=(0, 1), randomness="different")(stacked, inputs)
    assert seen == [expected]


def test_under_autocast_both_ways_are_compared_in_float64() -> None:
    here = own(Own(functional.relu))
    here.params = {name: part.detach().float() for name, part in here.params.items()}
    inputs = here.batch.inputs.float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (
            way_of(here.model.forward, here.params, inputs, inputs[:1]) is DerivativeMethod.FORWARDS
        )


class First(nn.Module):
    """Changes its input in place."""

    def __init__(self, backwards: bool) -> None:
        super().__init__()
        self.last = nn.Linear(7, CLASSES)
        self.backwards = backwards

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        functional.relu(inputs, inplace=True)
        scores: torch.Tensor = self.last(inputs.tanh() if self.backwards else inputs)
        return scores


@pytest.mark.parametrize("backwards", [False, True])
def test_a_network_may_change_its_input_in_place(backwards: bool) -> None:
    here = own(First(backwards))
    before = here.batch.inputs.clone()
    assert way(here) is (DerivativeMethod.BACKWARDS if backwards else DerivativeMethod.FORWARDS)
    at = (0.8 * here.batch.inputs).requires_grad_()
    outputs = here.model.forward(here.params, at.clone())
    own_loss = functional.cross_entropy(outputs, here.batch.targets)
    (slope,) = torch.autograd.grad(own_loss, at, create_graph=True)
    other, target = (torch.from_numpy(here.extra[name][0]) for name in ("inputs", "targets"))
    both = 0.8 * torch.eye(CLASSES).double()[here.batch.targets] + 0.2 * target
    expected = functional.cross_entropy(outputs, both) + 0.2 * (slope * other).sum()
    assert_equal(
        here.both(FedMixObjective(0.2)), (expected.item(), here.gradients(expected)), 1e-10
    )
    assert torch.equal(here.batch.inputs, before)


def test_a_batch_that_is_not_finite_decides_nothing() -> None:
    here = own(Own(functional.relu))
    inputs = here.batch.inputs
    broken = inputs * float("inf")
    found = way_of(here.model.forward, here.params, broken, inputs[:1])
    assert (found, way(here)) == (DerivativeMethod.BACKWARDS, DerivativeMethod.FORWARDS)

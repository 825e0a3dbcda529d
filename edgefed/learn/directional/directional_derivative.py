"""The derivative of a loss along a change of its inputs, by the faster of two exact methods.

    D = Σ_i < ∂loss_i/∂x_i , change >        loss_i: the part of sample i in the mean over the batch

Forward mode: the change is propagated through the network beside the values (``tangent``), for
networks that are known to be piecewise linear. Reverse mode, for all others: the network is
differentiated with respect to its inputs, and that derivative with respect to its parameters. Both
methods use one forward pass, are exact, and can be differentiated in the parameters. A difference
of two losses is not exact at any step size, because units switch between the two points.

A network that distinguishes a ``Dual`` from a tensor may compute another function of it. Before
forward mode is used, both methods are computed on one batch, in float64 and with the same random
numbers, and must agree in the outputs, in D and in the gradients of both.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from enum import Enum, auto
from types import MethodType
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch.func import vjp

from edgefed.learn.base.processors import repeatable
from edgefed.learn.base.torch_private import (
    get_unwrapped,
    is_functorch_wrapped_tensor,
    maybe_get_bdim,
    peek_interpreter_stack,
    temporarily_clear_interpreter_stack,
)
from edgefed.learn.base.types import Forward, Params
from edgefed.learn.directional.dual_numbers import NotPiecewiseLinearError, carry

Slope = Callable[[torch.Tensor], torch.Tensor]
"""Outputs of the network (batch, …) to the gradient of the mean loss there, of the same shape."""


TRIED = 8
"""Most samples of the batch on which both ways are compared."""

TOLERANCE = 1e-8
"""Largest difference between the two ways, relative to the largest value."""

SMALL = 1e-6
"""A largest value below this counts as this."""


class DerivativeMethod(Enum):
    """The method for a network's derivative."""

    FORWARDS = auto()
    BACKWARDS = auto()
    BACKWARDS_WITHOUT_CUDNN = auto()


_WAYS: WeakKeyDictionary[Any, dict[object, DerivativeMethod]] = WeakKeyDictionary()


def along(
    forward: Forward, params: Params, inputs: torch.Tensor, change: torch.Tensor, slope: Slope
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the outputs for ``inputs``, and D, both differentiable in ``params``.

    Args:
        forward: the network; the suitable method is determined at its first use, and remembered.
        params: its parameters.
        inputs: point of the derivative (batch, …).
        change: the direction: (batch, …), or (1, …) for the same one for all samples.
        slope: the gradient of the loss with respect to the outputs.
    """
    way = way_of(forward, params, inputs, change)
    if way is DerivativeMethod.FORWARDS:
        try:
            return _forwards(forward, params, inputs, change, slope)
        except NotPiecewiseLinearError:
            # The network does something else with this batch than with the one it was tried on.
            way = _remember(forward, inputs, DerivativeMethod.BACKWARDS)
    with _without_cudnn() if way is DerivativeMethod.BACKWARDS_WITHOUT_CUDNN else nullcontext():
        return _backwards(forward, params, inputs, change, slope)


def way_of(
    forward: Forward, params: Params, inputs: torch.Tensor, change: torch.Tensor
) -> DerivativeMethod:
    """Return the quickest exact way for a network."""
    owner, key = _identity(forward, inputs)
    known = _WAYS.get(owner, {}).get(key)
    if known is not None:
        return known
    method = _find_out(forward, params, inputs, change)
    # Numbers that are not finite agree with none; the next batch may tell.
    return DerivativeMethod.BACKWARDS if method is None else _remember(forward, inputs, method)


def _remember(forward: Forward, inputs: torch.Tensor, way: DerivativeMethod) -> DerivativeMethod:
    """Return the way that a network is differentiated from now on."""
    owner, key = _identity(forward, inputs)
    _WAYS.setdefault(owner, {})[key] = way
    return way


def _forwards(
    forward: Forward, params: Params, inputs: torch.Tensor, change: torch.Tensor, slope: Slope
) -> tuple[torch.Tensor, torch.Tensor]:
    """Carry the change through the network."""
    dual = carry(forward, params, inputs, change)
    return dual.primal, (slope(dual.primal) * dual.tangent).sum()


def _backwards(
    forward: Forward, params: Params, inputs: torch.Tensor, change: torch.Tensor, slope: Slope
) -> tuple[torch.Tensor, torch.Tensor]:
    """Differentiate with respect to the inputs, so that it can be differentiated again."""
    if _transformed():
        pulled = vjp(lambda at: forward(params, at.clone()), inputs)
        outputs, (gradient,) = pulled[0], pulled[1](_slope_at(slope, pulled[0]))
    else:
        at = inputs if inputs.requires_grad else inputs.detach().requires_grad_()
        outputs = forward(params, at.clone())  # a leaf could not be changed in place
        pull = _slope_at(slope, outputs)
        (gradient,) = torch.autograd.grad(outputs, at, pull, create_graph=True)
    return outputs, (gradient * change).sum()


def _slope_at(slope: Slope, outputs: torch.Tensor) -> torch.Tensor:
    """Return the slope in the outputs' kind of number, which autocast may have made smaller."""
    return slope(outputs).to(outputs.dtype)


def _find_out(
    forward: Forward, params: Params, inputs: torch.Tensor, change: torch.Tensor
) -> DerivativeMethod | None:
    """Try a network on some samples, leaving no trace in parameters and generators.

    Returns:
        The way; None if the numbers are not finite.
    """
    copies = {name: tensor.detach().clone() for name, tensor in params.items()}
    few = inputs[:2].detach()
    with torch.no_grad(), repeatable(inputs.device, 0):
        try:
            carry(forward, copies, few, change[:2])
        except NotPiecewiseLinearError:
            # Whatever a network cannot do with a dual, it can do with a tensor, or says so then.
            pass
        else:
            agree = _agree(forward, params, inputs, change)
            if agree is not False:
                return DerivativeMethod.FORWARDS if agree else None
    # Under a transform cuDNN's recurrent kernel is not used, and graphs are out of reach.
    if inputs.device.type == "cuda" and not _transformed() and _has_cudnn_rnn(forward, copies, few):
        return DerivativeMethod.BACKWARDS_WITHOUT_CUDNN
    return DerivativeMethod.BACKWARDS


def _agree(
    forward: Forward, params: Params, inputs: torch.Tensor, change: torch.Tensor
) -> bool | None:
    """Return whether both ways agree on a batch; None where a number is not finite.

    Under a transform the first of the networks that are computed at once is compared.
    """
    weights = {name: _one(tensor) for name, tensor in params.items()}
    given = (weights, _one(inputs)[:TRIED], _one(change)[:TRIED])
    with temporarily_clear_interpreter_stack(), torch.enable_grad():
        try:
            wanted = _tried(_backwards, forward, *given)
            actual = _tried(_forwards, forward, *given)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception:
            return False  # the network does not take float64, or not this batch
    if not all(bool(part.isfinite().all()) for part in wanted):
        return None
    return all(_near(one, other) for one, other in zip(actual, wanted, strict=True))


def _tried(
    way: Callable[..., tuple[torch.Tensor, torch.Tensor]],
    forward: Forward,
    params: Params,
    inputs: torch.Tensor,
    change: torch.Tensor,
) -> list[torch.Tensor]:
    """Return outputs, D and the gradients of a loss and of D, one way, in float64."""
    wide = {name: _widened(tensor) for name, tensor in params.items()}
    weights = [wide[name].requires_grad_() for name in params if params[name].requires_grad]
    with repeatable(inputs.device, 0):
        outputs, derivative = way(forward, wide, _widened(inputs), _widened(change), _slope)
    loss = (outputs + 1).square().sum() / (2 * len(outputs))
    results = [outputs.detach(), derivative.detach()]
    for value in (loss, derivative) if weights else ():
        gradients = torch.autograd.grad(
            value, weights, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        results.append(torch.cat([part.flatten() for part in gradients]))
    return results


def _slope(outputs: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the loss that both ways are compared by: squared distance from -1."""
    return (outputs + 1) / len(outputs)


def _near(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors are equal up to rounding."""
    if one.shape != other.shape:
        return False
    return float((one - other).abs().max()) <= TOLERANCE * max(SMALL, float(other.abs().max()))


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy in float64, of whole numbers as they are."""
    copied = tensor.detach().clone()
    return copied.double() if copied.is_floating_point() else copied


def _one(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor, or its value for the first of those that a transform computes at once."""
    while is_functorch_wrapped_tensor(tensor):
        batch = maybe_get_bdim(tensor)
        tensor = get_unwrapped(tensor)
        tensor = tensor if batch < 0 else tensor.select(batch, 0)
    return tensor


def _has_cudnn_rnn(forward: Forward, params: Params, inputs: torch.Tensor) -> bool:
    """Return whether a network uses cuDNN's recurrent kernel, which has no second derivative."""
    with repeatable(inputs.device, 0), torch.enable_grad():
        waiting = [forward(params, inputs.detach().requires_grad_().clone()).grad_fn]
    seen: set[Any] = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        if "CudnnRnn" in node.name():
            return True
        seen.add(node)
        waiting.extend(before for before, _ in node.next_functions)
    return False


def _without_cudnn() -> AbstractContextManager[None]:
    """Return a context in which torch's own kernels compute."""
    return cast(AbstractContextManager[None], torch.backends.cudnn.flags(enabled=False))


def _identity(forward: Forward, inputs: torch.Tensor) -> tuple[Any, object]:
    """Return the owner of a network's function, the function, and the way of the call."""
    how = (_transformed(), inputs.device.type)
    if isinstance(forward, MethodType):
        return forward.__self__, (forward.__func__, *how)
    return forward, how


def _transformed() -> bool:
    """Return whether a transform of ``torch.func`` is at work."""
    return peek_interpreter_stack() is not None

"""The derivative of a loss along one change of its inputs, in the quicker of two exact ways.

    D = Σ_i < ∂loss_i/∂x_i , change >        loss_i: the part of sample i in the mean over the batch

Forwards: the change is carried through the network beside the values (``tangent``), for networks
that are known to be piecewise linear. Backwards: the network is differentiated with respect to its
inputs, and that derivative again with respect to its parameters, for all others. Either way there
is one forward pass, and D can be differentiated in the parameters; and each is exact. A difference
of two losses would not be: units that switch between the two points spoil it at every step size.
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

from edgefed.learn.devices import repeatable
from edgefed.learn.tangent import Dual, NotPiecewiseLinearError
from edgefed.learn.types import Forward, Params

Slope = Callable[[torch.Tensor], torch.Tensor]
"""Outputs of the network (batch, …) to the gradient of the mean loss there, of the same shape."""


class Way(Enum):
    """How a network's derivative is taken."""

    FORWARDS = auto()
    BACKWARDS = auto()
    BACKWARDS_WITHOUT_CUDNN = auto()


_WAYS: WeakKeyDictionary[Any, dict[object, Way]] = WeakKeyDictionary()


def along(
    forward: Forward, params: Params, inputs: torch.Tensor, change: torch.Tensor, slope: Slope
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the outputs for ``inputs``, and D, both differentiable in ``params``.

    Args:
        forward: the network; which way suits it is found out at its first use, and remembered.
        params: its parameters.
        inputs: where the derivative is taken (batch, …).
        change: the direction: (batch, …), or (1, …) for the same one for all samples.
        slope: the gradient of the loss with respect to the outputs.
    """
    way = way_of(forward, params, inputs, change)
    if way is Way.FORWARDS:
        try:
            return _forwards(forward, params, inputs, change, slope)
        except NotPiecewiseLinearError:
            # The network does something else with this batch than with the one it was tried on.
            way = _remember(forward, inputs, Way.BACKWARDS)
    with _without_cudnn() if way is Way.BACKWARDS_WITHOUT_CUDNN else nullcontext():
        return _backwards(forward, params, inputs, change, slope)


def way_of(forward: Forward, params: Params, inputs: torch.Tensor, change: torch.Tensor) -> Way:
    """Return the quickest exact way for a network."""
    owner, key = _identity(forward, inputs)
    known = _WAYS.get(owner, {}).get(key)
    if known is not None:
        return known
    return _remember(forward, inputs, _find_out(forward, params, inputs, change))


def _remember(forward: Forward, inputs: torch.Tensor, way: Way) -> Way:
    """Return the way that a network is differentiated from now on."""
    owner, key = _identity(forward, inputs)
    _WAYS.setdefault(owner, {})[key] = way
    return way


def _forwards(
    forward: Forward, params: Params, inputs: torch.Tensor, change: torch.Tensor, slope: Slope
) -> tuple[torch.Tensor, torch.Tensor]:
    """Carry the change through the network."""
    dual = forward(params, cast(torch.Tensor, Dual(inputs, change)))
    outputs, changes = dual.primal, dual.tangent  # type: ignore[attr-defined]
    return outputs, (slope(outputs) * changes).sum()


def _backwards(
    forward: Forward, params: Params, inputs: torch.Tensor, change: torch.Tensor, slope: Slope
) -> tuple[torch.Tensor, torch.Tensor]:
    """Differentiate with respect to the inputs, so that it can be differentiated again."""
    if _transformed():
        pulled = vjp(lambda at: forward(params, at), inputs)
        outputs, (gradient,) = pulled[0], pulled[1](_slope_at(slope, pulled[0]))
    else:
        at = inputs if inputs.requires_grad else inputs.detach().requires_grad_()
        outputs = forward(params, at)
        pull = _slope_at(slope, outputs)
        (gradient,) = torch.autograd.grad(outputs, at, pull, create_graph=True)
    return outputs, (gradient * change).sum()


def _slope_at(slope: Slope, outputs: torch.Tensor) -> torch.Tensor:
    """Return the slope in the outputs' kind of number, which autocast may have made smaller."""
    return slope(outputs).to(outputs.dtype)


def _find_out(forward: Forward, params: Params, inputs: torch.Tensor, change: torch.Tensor) -> Way:
    """Try a network on two samples, leaving no trace in parameters and generators."""
    copies = {name: tensor.detach().clone() for name, tensor in params.items()}
    few = inputs[:2].detach()
    with torch.no_grad(), repeatable(inputs.device, 0):
        try:
            if isinstance(forward(copies, cast(torch.Tensor, Dual(few, change[:2]))), Dual):
                return Way.FORWARDS
        except Exception:
            # Whatever a network cannot do with a dual, it can do with a tensor, or says so then.
            pass
    # Under a transform cuDNN's recurrent kernel is not used, and graphs are out of reach.
    if inputs.device.type == "cuda" and not _transformed() and _has_cudnn_rnn(forward, copies, few):
        return Way.BACKWARDS_WITHOUT_CUDNN
    return Way.BACKWARDS


def _has_cudnn_rnn(forward: Forward, params: Params, inputs: torch.Tensor) -> bool:
    """Return whether a network uses cuDNN's recurrent kernel, which has no second derivative."""
    with repeatable(inputs.device, 0), torch.enable_grad():
        waiting = [forward(params, inputs.detach().requires_grad_()).grad_fn]
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
    """Return what a network belongs to, and which part of it is called, where and how."""
    how = (_transformed(), inputs.device.type)
    if isinstance(forward, MethodType):
        return forward.__self__, (forward.__func__, *how)
    return forward, how


def _transformed() -> bool:
    """Return whether a transform of ``torch.func`` is at work."""
    return torch._C._functorch.peek_interpreter_stack() is not None

"""Derivatives along one direction through piecewise linear networks: values and changes together.

A network of linear layers, convolutions, ReLU and pooling is linear as long as its decisions stay
the same: which units are active, which pixel is the largest, which values dropout removes. Its
derivative in the direction of a change of its inputs is therefore that change, passed through the
same network without biases, with the decisions of the values. A ``Dual`` carries both through an
unchanged ``forward``. The result is differentiable in the parameters by ordinary backpropagation,
and it is exact: within a linear piece, second derivatives are zero.

A change that is the same for all samples is computed once until decisions differ between samples.

Operations that are not known to be piecewise linear raise an error, and the error is remembered: a
``forward`` that catches it and continues fails at its end. The same holds for an in-place operation
on values that another ``Dual`` may share, such as a tensor and its views.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, cast

import torch
from torch.nn import functional

from edgefed.learn.base.types import Forward, Params
from edgefed.learn.networks.blocks import conv_pool_relu, conv_pool_relu_dual

_REFUSED: ContextVar[list[str]] = ContextVar("_REFUSED")
"""The functions that were refused since ``carry`` began."""


class NotPiecewiseLinearError(Exception):
    """A network does something of which it is not known that it is piecewise linear."""


def carry(forward: Forward, params: Params, inputs: torch.Tensor, change: torch.Tensor) -> Dual:
    """Return the outputs of a network and their change.

    Args:
        forward: the network.
        params: its parameters.
        inputs: point of the derivative (batch, …).
        change: the direction: (batch, …), or (1, …) for the same one for all samples.

    Raises:
        NotPiecewiseLinearError: the network uses a refused operation, even if it catches the error,
            or does not take a ``Dual``.
    """
    refused: list[str] = []
    token = _REFUSED.set(refused)
    try:
        outputs: Any = forward(params, cast(torch.Tensor, Dual(inputs, change)))
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:
        raise NotPiecewiseLinearError(type(error).__name__) from error
    finally:
        _REFUSED.reset(token)
    if refused or not isinstance(outputs, Dual):
        raise NotPiecewiseLinearError(refused[0] if refused else "an answer without a change")
    return outputs


def _refusal(what: str) -> NotPiecewiseLinearError:
    """Return the error of something that is refused, and remember it."""
    _REFUSED.get([]).append(what)
    return NotPiecewiseLinearError(what)


class Dual:
    """Values and their change, in place of the tensor that a network is given.

    It is not a tensor: torch passes every function of it to ``__torch_function__``, and every
    function that is not defined here is refused, so that no derivative is ever wrong.

    Attributes:
        primal: the values (batch, …).
        tangent: their change, (batch, …) or, the same for all samples, (1, …).
        shared: whether another one may be a view of the same values.
    """

    def __init__(
        self, primal: torch.Tensor, tangent: torch.Tensor, *, shared: bool = False
    ) -> None:
        self.primal = primal
        self.tangent = tangent
        self.shared = shared

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Do ``func`` to values and changes."""
        rule = RULES.get(func)
        name = getattr(func, "__name__", str(func))
        if rule is None:
            raise _refusal(name)
        try:
            return rule(*args, **(kwargs or {}))
        except NotPiecewiseLinearError:
            raise
        except Exception as error:
            # It may be the rule that fails, where torch's own function would not.
            raise _refusal(name) from error

    def __getattr__(self, name: str) -> Any:
        """Refuse an undefined attribute."""
        raise _refusal(name)

    def wide(self) -> torch.Tensor:
        """Return the change, spelled out for every sample."""
        return self.tangent.expand_as(self.primal)

    @property
    def shape(self) -> torch.Size:
        """The shape of the values."""
        return self.primal.shape

    @property
    def dtype(self) -> torch.dtype:
        """The kind of number of the values."""
        return self.primal.dtype

    @property
    def device(self) -> torch.device:
        """Where the values are."""
        return self.primal.device

    @property
    def ndim(self) -> int:
        """The number of dimensions of the values."""
        return self.primal.dim()

    def size(self, dim: int | None = None) -> Any:
        """Return the size of the values, or of one of their dimensions."""
        return self.primal.shape if dim is None else self.primal.shape[dim]

    def dim(self) -> int:
        """Return the number of dimensions of the values."""
        return self.primal.dim()

    def __len__(self) -> int:
        return len(self.primal)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Dual:
        """Flatten dimensions, never that of the batch."""
        if start_dim % self.ndim == 0:
            raise _refusal("flatten of the batch")
        return self._view(
            self.primal.flatten(start_dim, end_dim), self.tangent.flatten(start_dim, end_dim)
        )

    def reshape(self, *sizes: Any) -> Dual:
        """Reshape each sample."""
        return self._reshaped(self.primal.reshape(*sizes))

    def view(self, *sizes: Any) -> Dual:
        """Reshape each sample, where the memory allows it."""
        if sizes and isinstance(sizes[0], torch.dtype):
            raise _refusal("view as another kind of number")
        return self._reshaped(self.primal.view(*sizes))

    def _reshaped(self, primal: torch.Tensor) -> Dual:
        """Return these values, reshaped, with their change."""
        if not primal.dim() or len(primal) != len(self):
            raise _refusal("reshape of the batch")
        return self._view(primal, self.tangent.reshape(len(self.tangent), *primal.shape[1:]))

    def contiguous(self) -> Dual:
        """Return the same values, one after another in memory."""
        return self._view(self.primal.contiguous(), self.tangent.contiguous())

    def _view(self, primal: torch.Tensor, tangent: torch.Tensor) -> Dual:
        """Return the same values in another shape, which may share their memory."""
        self.shared = True
        return Dual(primal, tangent, shared=True)

    def relu(self) -> Dual:
        """Return ReLU of the values."""
        return _relu(self)

    def relu_(self) -> Dual:
        """Return ReLU of the values, in their place."""
        return _relu(self, inplace=True)

    def add_(self, other: Any, *, alpha: float = 1) -> Dual:
        """Add another one, in place of this one's values."""
        added = _add(self, other, alpha=alpha)
        return _stored(self, added.primal, added.tangent, inplace=True)

    def __add__(self, other: Any) -> Dual:
        return _add(self, other)

    __radd__ = __add__
    __iadd__ = add_


def _refuse(name: str) -> Callable[..., Any]:
    """Return a special method that refuses to be called."""

    def special(self: Dual, *_: Any) -> Any:
        raise _refusal(name)

    return special


for _name in (
    *("bool", "int", "float", "complex", "index", "iter", "getitem", "setitem", "contains"),
    *("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "abs", "invert", "array", "copy"),
    *(side + name for side in ("", "r", "i") for name in ("sub", "mul", "truediv", "floordiv")),
    *(side + name for side in ("", "r", "i") for name in ("mod", "pow", "matmul", "and", "or")),
):
    # Python looks for these on the class, past ``__getattr__``.
    setattr(Dual, f"__{_name}__", _refuse(_name))


def _linear(inputs: Any, weight: Any, bias: Any = None) -> Dual:
    """Put both through one product, which reads the weights once; add the bias to the values."""
    if not _only_first(inputs, weight, bias) or inputs.ndim != 2:
        raise _refusal("linear of something else")
    count, changes = len(inputs), len(inputs.tangent)
    both = functional.linear(torch.cat([inputs.primal, inputs.tangent]), weight)
    primal, tangent = torch.split(both, [count, changes])
    return Dual(primal if bias is None else primal + bias, tangent)


def _conv2d(
    input: Any,  # noqa: A002 - as torch calls it
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Dual:
    """Convolve both; add the bias to the values."""
    if not _only_first(input, weight, bias):
        raise _refusal("conv2d of something else")
    rest = (stride, padding, dilation, groups)
    return Dual(
        functional.conv2d(input.primal, weight, bias, *rest),
        functional.conv2d(input.tangent, weight, None, *rest),
    )


def _conv_pool_relu(inputs: Any, weight: Any, bias: Any, padding: int) -> Dual:
    """Put both through the fused layer."""
    if not _only_first(inputs, weight, bias):
        raise _refusal("conv_pool_relu of something else")
    return Dual(*conv_pool_relu_dual(inputs.primal, inputs.wide(), weight, bias, padding))


def _relu(input: Dual, inplace: bool = False) -> Dual:  # noqa: A002 - as torch calls it
    """Let changes pass where the values are positive."""
    primal = functional.relu(input.primal)
    tangent = torch.ops.aten.threshold_backward(input.wide(), primal.detach(), 0)
    return _stored(input, primal, tangent, inplace)


def _max_pool2d(
    input: Dual,  # noqa: A002 - as torch calls it
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Dual:
    """Take changes where the values are largest."""
    if return_indices:
        raise _refusal("indices of a pooling")
    primal, index = functional.max_pool2d(
        input.primal, kernel_size, stride, padding, dilation, ceil_mode, return_indices=True
    )
    return Dual(primal, _taken(input.wide(), index))


def _taken(change: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return the pixels of a change that pooling took, in the memory order of ``index``."""
    if index.stride(1) != 1:
        return change.flatten(2).gather(2, index.flatten(2)).view_as(index)
    change, index = change.permute(0, 2, 3, 1), index.permute(0, 2, 3, 1)
    taken = change.flatten(1, 2).gather(1, index.flatten(1, 2))
    return taken.view_as(index).permute(0, 3, 1, 2)


def _dropout(input: Dual, p: float = 0.5, training: bool = True, inplace: bool = False) -> Dual:  # noqa: A002
    """Multiply both by one mask, the one that the values alone would have drawn."""
    return _masked(functional.dropout, input, p, training, inplace)


def _dropout2d(input: Dual, p: float = 0.5, training: bool = True, inplace: bool = False) -> Dual:  # noqa: A002
    """Multiply both by one mask of channels."""
    return _masked(functional.dropout2d, input, p, training, inplace)


def _masked(
    drop: Callable[[torch.Tensor, float, bool], torch.Tensor],
    dual: Dual,
    p: float,
    training: bool,
    inplace: bool,
) -> Dual:
    """Multiply both by dropout's result for ones."""
    if not training or p == 0:
        return dual
    mask = drop(torch.ones_like(dual.primal), p, True)
    return _stored(dual, dual.primal * mask, dual.tangent * mask, inplace)


def _stored(dual: Dual, primal: torch.Tensor, tangent: torch.Tensor, inplace: bool) -> Dual:
    """Return a result, in place of its argument where the network asks for that."""
    if not inplace:
        return Dual(primal, tangent)
    if dual.shared:
        raise _refusal("an operation in place on shared values")
    dual.primal, dual.tangent = primal, tangent
    return dual


def _add(one: Any, other: Any, *, alpha: float = 1) -> Dual:
    """Add duals, or a constant, which changes nothing."""
    if isinstance(one, Dual) and isinstance(other, Dual):
        if one.shape != other.shape:
            raise _refusal("sum of other shapes")
        primal = torch.add(one.primal, other.primal, alpha=alpha)
        return Dual(primal, torch.add(one.tangent, other.tangent, alpha=alpha))
    raise _refusal("sum with something else")


def _flatten(input: Dual, start_dim: int = 0, end_dim: int = -1) -> Dual:  # noqa: A002
    """Flatten, as a function."""
    return input.flatten(start_dim, end_dim)


def _reshape(input: Dual, shape: Any) -> Dual:  # noqa: A002 - as torch calls it
    """Reshape, as a function."""
    return input.reshape(shape)


def _linear_rule(func: Callable[..., torch.Tensor]) -> Callable[..., Dual]:
    """Return the rule of a function that is linear in its first argument, sample by sample."""

    def rule(input: Dual, *args: Any, **kwargs: Any) -> Dual:  # noqa: A002 - as torch calls it
        return Dual(func(input.primal, *args, **kwargs), func(input.tangent, *args, **kwargs))

    return rule


def _only_first(first: Any, *others: Any) -> bool:
    """Return whether the first of these is the only dual."""
    return isinstance(first, Dual) and not any(isinstance(other, Dual) for other in others)


_POOLINGS: tuple[Callable[..., torch.Tensor], ...] = (
    functional.avg_pool2d, functional.adaptive_avg_pool2d
)  # fmt: skip

RULES: Mapping[Callable[..., Any], Callable[..., Any]] = {
    functional.linear: _linear,
    functional.conv2d: _conv2d,
    conv_pool_relu: _conv_pool_relu,
    functional.relu: _relu,
    torch.relu: _relu,
    torch.relu_: Dual.relu_,
    functional.max_pool2d: _max_pool2d,
    functional.max_pool2d_with_indices: _max_pool2d,
    torch.max_pool2d: _max_pool2d,
    functional.dropout: _dropout,
    functional.dropout2d: _dropout2d,
    torch.add: _add,
    torch.flatten: _flatten,
    torch.reshape: _reshape,
    **{pooling: _linear_rule(pooling) for pooling in _POOLINGS},
}
"""The rules for a dual in place of functions of torch."""

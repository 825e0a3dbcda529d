"""Convolution, pooling and ReLU by the compiled kernels, as operations that torch differentiates.

torch underuses a core on layers with few channels. These kernels fuse the three layers, and
propagate gradients only through the one value in four that pooling selects (docs/performance.md).
torch computes derivatives of gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import Function

from edgefed.learn.base.torch_private import is_watched
from edgefed.learn.networks import plain_conv
from edgefed.native import convolution
from edgefed.native.library import native

MOST_BEFORE, MOST_AFTER = 32, 64
"""Channels of input and output; with more, torch's own kernels are as quick."""

PLAIN = (torch.Tensor, torch.nn.Parameter)
"""Kinds of tensor that are nothing but their values."""

Gradients = tuple[torch.Tensor | None, ...]


def can_take(
    inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, padding: int
) -> bool:
    """Return whether the kernels can compute this call, and faster than torch.

    They take float32 on the CPU, outside of autocast and of torch's function transforms. Arguments
    that do not fit together are left to torch, which raises the error.
    """
    # A watched call may have no number of samples yet: reading its length would fix one.
    if is_watched() or native().library is None:
        return False
    if inputs.dim() != 4 or weight.dim() != 4 or not len(inputs):
        return False
    after, before, kernel, across = weight.shape
    least = min(inputs.shape[2:]) + 2 * padding
    return (
        kernel == across
        and kernel in convolution.KERNELS
        and before == inputs.shape[1]
        and 1 <= before <= MOST_BEFORE
        and 1 <= after <= MOST_AFTER
        and padding >= 0
        and least > kernel
        and (bias is None or bias.shape == (after,))
        and all(is_plain(tensor) for tensor in (inputs, weight, bias) if tensor is not None)
    )


def fits(tangent: torch.Tensor, primal: torch.Tensor) -> bool:
    """Return whether a change of inputs that the kernels take is one that they take, too."""
    return tangent.shape == primal.shape and is_plain(tangent)


def single(
    inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, padding: int
) -> torch.Tensor:
    """Return the layer's output; arguments as for ``blocks.conv_pool_relu``."""
    output: torch.Tensor = _apply(_Single, inputs, weight, bias, padding)
    return output


def dual(
    primal: torch.Tensor,
    tangent: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    padding: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the layer's output and its derivative; as for ``blocks.conv_pool_relu_dual``."""
    output, change = _apply(_Dual, primal, tangent, weight, bias, padding)
    return output, change


def is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is just float32 in this machine's memory."""
    return (
        type(tensor) in PLAIN
        and tensor.dtype == torch.float32
        and tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and not tensor.is_neg()
    )


def _apply(function: type[Function], *arguments: Any) -> Any:
    """Call an operation; torch's annotations leave its result open."""
    return function.apply(*arguments)


class _Single(Function):
    """The layer."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        padding: int,
    ) -> torch.Tensor:
        """Return the output."""
        output, codes = _forward(inputs, weight, bias, padding)
        ctx.padding = padding
        ctx.save_for_backward(inputs, weight, bias, codes)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Gradients:
        """Return the gradients of inputs, weight and bias."""
        inputs, weight, bias, codes = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:3]
        if torch.is_grad_enabled():
            given = (inputs, weight, bias)
            return (*_by_torch(plain_conv.single, given, wanted, ctx.padding, gradient), None)
        sizes = _sizes(inputs, weight, ctx.padding)
        back = _inputs_gradient(sizes, weight, gradient, codes) if wanted[0] else None
        heavy = shift = None
        if wanted[1] or wanted[2]:
            heavy, shift = _weights_gradient(sizes, inputs, gradient, codes)
        return back, heavy, shift if wanted[2] else None, None


class _Dual(Function):
    """The layer and its derivative in one direction."""

    @staticmethod
    def forward(
        ctx: Any,
        primal: torch.Tensor,
        tangent: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        padding: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the output and its derivative."""
        output, codes = _forward(primal, weight, bias, padding)
        change = torch.empty_like(output)
        convolution.tangent(
            _sizes(primal, weight, padding),
            tangent.data_ptr(),
            tangent.stride(),
            weight.contiguous().data_ptr(),
            codes.data_ptr(),
            change.data_ptr(),
        )
        ctx.padding = padding
        ctx.save_for_backward(primal, tangent, weight, bias, codes)
        return output, change

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, change_gradient: torch.Tensor) -> Gradients:
        """Return the gradients of primal, tangent, weight and bias."""
        primal, tangent, weight, bias, codes = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:4]
        if torch.is_grad_enabled():
            given, both = (primal, tangent, weight, bias), (gradient, change_gradient)
            return (*_by_torch(plain_conv.dual, given, wanted, ctx.padding, *both), None)
        sizes = _sizes(primal, weight, ctx.padding)
        back = _inputs_gradient(sizes, weight, gradient, codes) if wanted[0] else None
        along = _inputs_gradient(sizes, weight, change_gradient, codes) if wanted[1] else None
        heavy = shift = None
        if wanted[2] or wanted[3]:
            heavy, shift = _weights_gradient(sizes, primal, gradient, codes)
            heavy += _weights_gradient(sizes, tangent, change_gradient, codes)[0]
        return back, along, heavy, shift if wanted[3] else None, None


def _sizes(inputs: torch.Tensor, weight: torch.Tensor, padding: int) -> convolution.Sizes:
    return (*inputs.shape, len(weight), weight.shape[2], padding)


def _forward(
    inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, padding: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the output, and the codes of where each value comes from."""
    sizes = batch, _, height, width, after, kernel, _ = _sizes(inputs, weight, padding)
    rows, columns = ((size + 2 * padding - kernel + 1) // 2 for size in (height, width))
    output = torch.empty((batch, after, rows, columns))
    codes = torch.empty((batch, after, rows, columns), dtype=torch.uint8)
    weight = weight.contiguous()
    bias = torch.zeros(after) if bias is None else bias.contiguous()
    convolution.forward(
        sizes,
        inputs.data_ptr(),
        inputs.stride(),
        weight.data_ptr(),
        bias.data_ptr(),
        output.data_ptr(),
        codes.data_ptr(),
    )
    return output, codes


def _inputs_gradient(
    sizes: convolution.Sizes, weight: torch.Tensor, gradient: torch.Tensor, codes: torch.Tensor
) -> torch.Tensor:
    """Return the gradient of the inputs; its channels are last in memory."""
    batch, before, height, width, *_ = sizes
    back = torch.empty((batch, height, width, before))
    weight = weight.contiguous()
    convolution.inputs_gradient(
        sizes,
        weight.data_ptr(),
        gradient.data_ptr(),
        gradient.stride(),
        codes.data_ptr(),
        back.data_ptr(),
    )
    return back.permute(0, 3, 1, 2)


def _weights_gradient(
    sizes: convolution.Sizes, inputs: torch.Tensor, gradient: torch.Tensor, codes: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of weight and bias."""
    _, before, _, _, after, kernel, _ = sizes
    weight, bias = torch.empty((after, before, kernel, kernel)), torch.empty(after)
    convolution.weights_gradient(
        sizes,
        inputs.data_ptr(),
        inputs.stride(),
        gradient.data_ptr(),
        gradient.stride(),
        codes.data_ptr(),
        weight.data_ptr(),
        bias.data_ptr(),
    )
    return weight, bias


def _by_torch(
    layer: Callable[..., Any],
    given: Sequence[torch.Tensor | None],
    wanted: Sequence[bool],
    padding: int,
    *gradients: torch.Tensor,
) -> list[torch.Tensor | None]:
    """Return gradients that can be differentiated again, for those that are wanted.

    They are taken with respect to views, so that no path from one argument to another counts.
    """
    with torch.enable_grad():
        views = [None if tensor is None else tensor.view_as(tensor) for tensor in given]
        outputs = layer(*views, padding)
        targets = [
            view
            for view, is_wanted in zip(views, wanted, strict=True)
            if is_wanted and view is not None
        ]
        derivatives = iter(torch.autograd.grad(outputs, targets, gradients, create_graph=True))
    return [next(derivatives) if is_wanted else None for is_wanted in wanted]

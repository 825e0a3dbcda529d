"""Convolution, 2×2 max-pooling and ReLU as one layer, the most expensive one of small models.

Pooling comes before ReLU: the result is the same, on a quarter of the values.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.overrides import handle_torch_function, has_torch_function

from edgefed.learn.networks import plain_conv, small_conv


class ConvPoolReLU(nn.Conv2d):
    """A convolution of stride 1, halved by max-pooling, and ReLU: its parameters are a Conv2d's.

    Args:
        before: channels of the input.
        after: channels of the output.
        kernel: height and width of the filters.
        padding: pixels of zeros around the input.
    """

    def __init__(self, before: int, after: int, kernel: int, padding: int = 0) -> None:
        super().__init__(before, after, kernel, padding=padding)
        self._zeros = padding

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - as torch calls it
        """Return the layer's output for inputs (batch, before, height, width)."""
        return conv_pool_relu(input, self.weight, self.bias, self._zeros)


def conv_pool_relu(
    inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, padding: int
) -> torch.Tensor:
    """Return relu(max_pool2d(conv2d(inputs, weight, bias, padding=padding), 2)).

    A ``TorchFunctionMode`` sees this call as one operation.

    Args:
        inputs: (batch, before, height, width).
        weight: (after, before, kernel, kernel).
        bias: (after,), or None for none.
        padding: pixels of zeros around the input.
    """
    tensors = (inputs, weight) if bias is None else (inputs, weight, bias)
    if has_torch_function(tensors):
        answer: torch.Tensor = handle_torch_function(
            conv_pool_relu, tensors, inputs, weight, bias, padding
        )
        return answer
    if small_conv.can_take(inputs, weight, bias, padding):
        return small_conv.single(inputs, weight, bias, padding)
    return plain_conv.single(inputs, weight, bias, padding)


def conv_pool_relu_dual(
    primal: torch.Tensor,
    tangent: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    padding: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the layer's output, and its derivative in the direction of ``tangent``.

    The derivative is with respect to the inputs only: the convolution without bias, taken where the
    primal's maximum was, and 0 where ReLU is. It is differentiable in all arguments.

    Args:
        primal: inputs (batch, before, height, width).
        tangent: a change of the inputs, of the same shape.
        weight: as for ``conv_pool_relu``.
        bias: as for ``conv_pool_relu``.
        padding: as for ``conv_pool_relu``.
    """
    if small_conv.can_take(primal, weight, bias, padding) and small_conv.fits(tangent, primal):
        return small_conv.dual(primal, tangent, weight, bias, padding)
    return plain_conv.dual(primal, tangent, weight, bias, padding)

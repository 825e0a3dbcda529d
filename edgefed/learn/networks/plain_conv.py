"""Convolution, pooling and ReLU by torch's operations, for all devices and transforms."""

from __future__ import annotations

import torch
from torch.nn import functional


def single(
    inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, padding: int
) -> torch.Tensor:
    """Return the layer's output; arguments as for ``blocks.conv_pool_relu``."""
    return functional.relu(
        functional.max_pool2d(functional.conv2d(inputs, weight, bias, padding=padding), 2)
    )


def dual(
    primal: torch.Tensor,
    tangent: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    padding: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the layer's output and its derivative; as for ``blocks.conv_pool_relu_dual``."""
    before = functional.conv2d(primal, weight, bias, padding=padding)
    pooled, index = functional.max_pool2d(before, 2, return_indices=True)
    change = functional.conv2d(tangent, weight, None, padding=padding)
    there = change.flatten(2).gather(2, index.flatten(2)).view_as(pooled)
    return functional.relu(pooled), torch.where(pooled <= 0, 0.0, there)

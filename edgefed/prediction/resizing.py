"""Pillow's bilinear resize as torch operations, equal bit by bit, for any size of image.

Pillow scales rows, rounds to whole pixels, and then scales columns. Each pass is a product with a
matrix of weights in fixed point. All numbers here are whole numbers below 2**53 in float64, so the
products are exact in any order of summation, and in any program that executes an exported model.
"""

from __future__ import annotations

import torch

BITS = 22
"""Binary places of Pillow's weights."""


def resized(images: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Return images (n, channels, h, w), whole numbers from 0 to 255, scaled to a height and width.

    The result is float64 and holds whole numbers, too.
    """
    pixels = images.to(torch.float64)
    pixels = _rounded(torch.matmul(pixels, _weights(pixels.shape[3], width, axis=0)))
    return _rounded(torch.matmul(_weights(pixels.shape[2], height, axis=1), pixels))


def _weights(before: int, after: int, axis: int) -> torch.Tensor:
    """Return the weight of each pixel of a line in each pixel of the scaled line.

    The matrix is built in the orientation in which it is used, because ONNX Runtime merges a
    transposition into a product that it cannot compute in float64.

    Args:
        before: pixels of the line.
        after: pixels of the scaled line.
        axis: of the line's pixels in the matrix; the other one is that of the scaled line.
    """
    own = torch.arange(before, dtype=torch.float64)
    count = torch.ones_like(own).sum()
    own = own.unsqueeze(1 - axis)
    scale = count / after
    reach = torch.clamp(scale, min=1.0)
    centre = ((torch.arange(after, dtype=torch.float64) + 0.5) * scale).unsqueeze(axis)
    first, end = torch.floor(centre - reach + 0.5), torch.floor(centre + reach + 0.5)
    shares = torch.clamp(1 - torch.abs((own - centre + 0.5) * (1.0 / reach)), min=0)
    shares = torch.where((own >= first) & (own < end), shares, torch.zeros_like(shares))
    shares = shares / shares.sum(axis, keepdim=True)
    return torch.floor(shares * (1 << BITS) + 0.5)


def _rounded(sums: torch.Tensor) -> torch.Tensor:
    """Return sums in fixed point as pixels."""
    return torch.clamp(torch.floor((sums + (1 << (BITS - 1))) / (1 << BITS)), 0, 255)

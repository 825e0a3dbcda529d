"""Clipping of gradients by their global norm, as ``torch.nn.utils.clip_grad_norm_`` does it.

All gradients of an update are multiplied by min(1, c / (|g| + 1e-6)), where |g| is the Euclidean
norm of all of them together and c the largest norm that they may have.
"""

from __future__ import annotations

import torch

TINY = 1e-6
"""Added to the norm, as torch does; clipped gradients are a little shorter than the limit."""


@torch.no_grad()
def clipped(gradients: list[torch.Tensor], limit: float) -> list[torch.Tensor]:
    """Return gradients whose global norm is at most ``limit``; as they are where that is 0."""
    if not limit:
        return gradients
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    return list(torch._foreach_mul(gradients, _factor(norm, limit)))


@torch.no_grad()
def clipped_each(gradients: list[torch.Tensor], limit: float) -> list[torch.Tensor]:
    """Return gradients (clients, …) clipped for each client alone; as they are where it is 0."""
    if not limit:
        return gradients
    norms = [torch.linalg.vector_norm(part.reshape(len(part), -1), dim=1) for part in gradients]
    factors = _factor(torch.linalg.vector_norm(torch.stack(norms), dim=0), limit)
    return [
        part * factors.to(part.dtype).reshape(-1, *[1] * (part.dim() - 1)) for part in gradients
    ]


def _factor(norm: torch.Tensor, limit: float) -> torch.Tensor:
    return (limit / (norm + TINY)).clamp(max=1.0)

"""A term that is linear in the weights, on top of any objective: it adds a constant to gradients.

SCAFFOLD adds its control variates in this way (Karimireddy et al., ICML 2020, algorithm 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from edgefed.learn.base.types import Context, Params, Tensors
from edgefed.learn.objectives.added_term import AddedTerm

SHIFT = "shift."
"""Before the name of a weight in the job's extras: the part of d for that weight."""


@dataclass(frozen=True)
class Linear(AddedTerm):
    """h(w) = inner(w) + <d, w>, whose gradient is that of ``inner`` plus d.

    The job's extras hold d (``shifts``). The value stays that of ``inner``: that of the term says
    nothing about the samples.
    """

    def term(self, params: Params, context: Context) -> torch.Tensor | None:
        """Return <d, w> with the value 0."""
        parts = [(context.extra[SHIFT + name] * params[name]).sum() for name in context.anchor]
        if not parts:
            return None
        product = torch.stack(parts).sum()
        return product - product.detach()


def shifts(d: Tensors) -> Tensors:
    """Return d as a job's extras hold it."""
    return {SHIFT + name: array for name, array in d.items()}

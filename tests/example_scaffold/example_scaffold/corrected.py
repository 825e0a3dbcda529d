"""The corrected local objective of SCAFFOLD."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from edgefed.extension import Batch, Context, Forward, Objective, Params, is_single_pass


@dataclass(frozen=True)
class Corrected:
    """An objective whose gradient has c - c_i added; its value stays the inner one's.

    The gradient of <c - c_i, y> with respect to y is c - c_i. The difference is the context's
    extra, under the names of the weights.
    """

    inner: Objective

    @property
    def single_pass(self) -> bool:
        """Whether the inner objective calls the model once per step."""
        return is_single_pass(self.inner)

    def __call__(
        self, forward: Forward, params: Params, batch: Batch, context: Context
    ) -> torch.Tensor:
        """Return the scalar loss."""
        loss = self.inner(forward, params, batch, context)
        terms = [(context.extra[name] * params[name]).sum() for name in context.anchor]
        correction = torch.stack(terms).sum()
        return loss + (correction - correction.detach())

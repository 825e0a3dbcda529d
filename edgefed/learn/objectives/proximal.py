"""FedProx's proximal term, on top of any objective.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks,
MLSys 2020, equation 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from edgefed.learn.base.types import Context, Params, Tensors
from edgefed.learn.objectives.added_term import AddedTerm

CENTRE = "centre."
"""Before the name of a weight in the job's extras: the part of the centre for that weight."""


@dataclass(frozen=True)
class Proximal(AddedTerm):
    """h(w) = inner(w) + μ/2 ||w - c||² over the weights that are trained.

    Attributes:
        mu: strength of the pull, at least 0; 0 is ``inner`` itself, bit for bit. The FedProx paper
            tunes it over 0.001, 0.01, 0.1 and 1.
        has_centre: whether the job's extras hold the centre c (``centred``); otherwise it is the
            start of the training.
    """

    mu: float
    has_centre: bool = False

    def centre(self, context: Context) -> Mapping[str, torch.Tensor]:
        """Return c by the names of the weights that are trained."""
        if not self.has_centre:
            return context.anchor
        return {name: context.extra[CENTRE + name] for name in context.anchor}

    def term(self, params: Params, context: Context) -> torch.Tensor | None:
        """Return μ/2 ||w - c||²."""
        if self.mu == 0 or not context.anchor:
            return None
        distances = [
            (params[name] - point).square().sum() for name, point in self.centre(context).items()
        ]
        return self.mu / 2 * torch.stack(distances).sum()


def centred(c: Tensors) -> Tensors:
    """Return a centre as a job's extras hold it."""
    return {CENTRE + name: array for name, array in c.items()}

"""FedProx's proximal term, on top of any objective.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks,
MLSys 2020, equation 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from edgefed.learn.base.types import Context, Params
from edgefed.learn.objectives.added_term import AddedTerm


@dataclass(frozen=True)
class Proximal(AddedTerm):
    """h(w) = inner(w) + μ/2 ||w - anchor||² over the weights that are trained.

    Attributes:
        mu: strength of the pull, at least 0; 0 is ``inner`` itself, bit for bit. The FedProx paper
            tunes it over 0.001, 0.01, 0.1 and 1.
    """

    mu: float

    def term(self, params: Params, context: Context) -> torch.Tensor | None:
        """Return μ/2 ||w - anchor||²."""
        if self.mu == 0 or not context.anchor:
            return None
        distances = [
            (params[name] - start).square().sum() for name, start in context.anchor.items()
        ]
        return self.mu / 2 * torch.stack(distances).sum()

"""How a device without labels uses a mixture of experts: by the gates that other devices gave."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from edgefed.learn.mixture_prediction import Gate, marginal_predictor, prior_shares
from edgefed.learn.scoring import Predict, Predictor
from edgefed.learn.types import Array, Tensors


def marginal(
    experts: Mapping[int, Tensors], gates: Mapping[str, Array]
) -> Callable[[Predict], Predictor]:
    """Return a predictor by p(z|x) = sum_s p(z|x, s) p(s), with p(s) by samples.

    Args:
        experts: weights by number, of all experts.
        gates: as ``gate_collection`` keeps them.
    """
    prior = prior_shares([int(count) for count in gates["samples"]])
    return marginal_predictor(experts, unstacked(gates), prior)


def unstacked(gates: Mapping[str, Array]) -> list[Gate]:
    """Return collected gates one by one."""
    parts = zip(gates["weight"], gates["bias"], gates["shares"], gates["kept"], strict=True)
    return [
        Gate(weight, bias, shares, tuple(int(k) for k in np.flatnonzero(kept)))
        for weight, bias, shares, kept in parts
    ]

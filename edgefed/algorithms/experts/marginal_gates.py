"""How a device without labels uses a mixture of experts: by the gates that other devices gave."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from edgefed.algorithms.experts.expert_records import COLLECT, DENSITIES, SEED
from edgefed.algorithms.interface.base import State
from edgefed.learn.base.types import Array, Tensors
from edgefed.learn.training.density import density_shares
from edgefed.learn.training.mixture_prediction import Gate, marginal_predictor, prior_shares
from edgefed.learn.training.scoring import Predict, Predictor

DeviceShares = Callable[[Array], Array]
"""Inputs (n, …) to p(s|x), (n, S)."""


def marginal(
    experts: Mapping[int, Tensors], gates: Mapping[str, Array], shares: DeviceShares | None = None
) -> Callable[[Predict], Predictor]:
    """Return a predictor by p(z|x) = sum_s p(z|x, s) p(s|x).

    Args:
        experts: weights by number, of all experts.
        gates: of S devices, as ``gate_collection`` keeps them.
        shares: p(s|x) of these devices; None for p(s), their shares of the samples.
    """
    prior = prior_shares([int(count) for count in gates["samples"]])
    return marginal_predictor(experts, unstacked(gates), shares or prior)


def unstacked(gates: Mapping[str, Array]) -> list[Gate]:
    """Return collected gates one by one."""
    parts = zip(gates["weight"], gates["bias"], gates["shares"], gates["kept"], strict=True)
    return [
        Gate(weight, bias, shares, tuple(int(k) for k in np.flatnonzero(kept)))
        for weight, bias, shares, kept in parts
    ]


def likely_shares(state: State, draws: int) -> DeviceShares | None:
    """Return p(s|x) by the densities sent with gates; None without any.

    A device that sent a gate only has no share.
    """
    given = state.groups.get(DENSITIES)
    if given is None:
        return None
    devices: list[str] = state.params[COLLECT]
    places = [devices.index(name) for name in state.params[DENSITIES]]
    densities = [{name: array[k] for name, array in given.items()} for k in range(len(places))]
    samples = [int(count) for count in state.groups[COLLECT]["samples"][places]]
    known_shares = density_shares(densities, samples, draws, state.params[SEED])

    def shares(inputs: Array) -> Array:
        every = np.zeros((len(inputs), len(devices)))
        every[:, places] = known_shares(inputs)
        return every

    return shares

"""Shares of experts, as plain arrays in float64: q(z|y) of a table, q(z|s) of a device, pruning.

Reisser, Louizos, Gavves, Welling: Federated Mixture of Experts, 2021, equations 5 to 8 and
algorithm 2. With phi the table (conditions, experts), eta the pruning threshold and K experts:

    q(z|y)  = softmax_z(phi[y, :])
    q(z|s)  = sum_y p(y|s) q(z|y)                     p(y|s) the device's label frequencies
    q'(z|y) = q(z|y) where q(z|s) >= eta / K, else 0; divided by its sum
"""

from __future__ import annotations

import numpy as np

from edgefed.learn.base.types import Array

HYSTERESIS = 0.9
"""The coordinator sends an expert from this fraction of the threshold on, so that one whose share
rises above the threshold again is available (algorithm 2)."""

ROUNDING = 1e-6
"""Part by which a share may be below the threshold: equal shares of rounded numbers are equal."""


def least_share(threshold: float, experts: int) -> float:
    """Return the smallest share of an expert that a device uses, eta / K up to rounding."""
    return threshold / experts * (1 - ROUNDING)


def shares_of(table: Array) -> Array:
    """Return q(z|y), float64 (conditions, experts), of a table of logits."""
    logits = np.asarray(table, np.float64)
    # Shifted, so that no exponential overflows
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: Array = powers / powers.sum(axis=1, keepdims=True)
    return shares


def device_shares(table: Array, frequencies: Array) -> Array:
    """Return q(z|s), float64 (experts,).

    Args:
        table: phi (conditions, experts).
        frequencies: p(y|s) (conditions,), of sum 1.
    """
    shares: Array = np.asarray(frequencies, np.float64) @ shares_of(table)
    return shares


def kept_experts(shares: Array, threshold: float) -> tuple[int, ...]:
    """Return the numbers of the experts whose share is at least ``threshold`` / experts.

    The largest share is at least 1 / experts, so one is kept for any threshold up to 1.
    """
    kept = np.flatnonzero(shares >= least_share(threshold, len(shares)))
    return tuple(int(expert) for expert in kept)


def pruned(shares: Array, kept: tuple[int, ...]) -> Array:
    """Return q' (…, experts): the shares of the experts that are kept, divided by their sum.

    Where none of the kept ones has a share, they have equal ones.
    """
    mask = np.isin(np.arange(shares.shape[-1]), kept)
    left = np.where(mask, np.asarray(shares, np.float64), 0.0)
    total = left.sum(axis=-1, keepdims=True)
    equal = mask / max(1, mask.sum())
    return np.where(total > 0, left / np.where(total > 0, total, 1.0), equal)


def entropy(shares: Array) -> float:
    """Return the entropy of shares (experts,) in nats."""
    some = shares[shares > 0]
    return float(-(some * np.log(some)).sum())


def marginal_entropy_gradient(table: Array, frequencies: Array) -> Array:
    """Return the gradient of H(sum_y p(y) q(z|y)) with respect to phi (conditions, experts).

    With m the marginal and g = -(log m + 1) its entropy's gradient,

        dH / dphi[y, k] = p(y) q(k|y) (g_k - sum_j q(j|y) g_j).
    """
    shares = shares_of(table)
    weights = np.asarray(frequencies, np.float64)[:, None]
    marginal = (weights * shares).sum(axis=0)
    # At least tiny, so that an expert without any share has a finite slope
    slope = -(np.log(np.maximum(marginal, np.finfo(np.float64).tiny)) + 1)
    gradient: Array = weights * shares * (slope - shares @ slope[:, None])
    return gradient

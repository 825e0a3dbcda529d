"""Estimate a device's label frequencies p(y|s) from its answer, as a coordinator could.

Reisser, Louizos, Gavves, Welling: Federated Mixture of Experts, 2021, appendix C.

A mixture of experts, with the table q(z|y) that the device used:

    q(z|s) = sum_y p(y|s) q(z|y)

is solved for p(y|s) by least squares over frequencies. If the table has fewer independent columns
than there are labels, many p(y|s) give the same q(z|s); the one of least norm is returned.

Any other answer, by the change d of the output layer's bias. After one step of gradient descent
with learning rate a on all samples, from weights with which all classes are equally likely:

    d_k = a (p(y=k|s) - 1/C)                                           (equations 14 and 15)

After several steps the direction still discloses them: p(y=k|s) is about (d_k - min d) / sum_j(d_j
- min d).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgefed.sharing.types import Array

RIDGE = 1e-10
"""Weight of the norm against the squared residual; the larger, the less exact."""

RANK_TOLERANCE = 1e-5
"""A singular value below this fraction of the largest one counts as 0: shares come as float32."""

_TOTAL = 10.0
"""Weight of the equation that frequencies have the sum 1."""

_STEPS = 200


@dataclass(frozen=True, eq=False)
class Frequencies:
    """Label frequencies that were computed from an answer.

    Attributes:
        shares: float64 (labels,), at least 0 and of sum 1.
        determined: whether no other frequencies give the same answer.
    """

    shares: Array
    determined: bool


def frequencies_of_mixture(mixture: Array, table: Array) -> Frequencies:
    """Solve q(z|s) = sum_y p(y|s) q(z|y) for p(y|s).

    Args:
        mixture: q(z|s) (experts,), at least 0 and of sum 1.
        table: q(z|y) (labels, experts), rows of sum 1.
    """
    rows = np.asarray(table, np.float64)
    values = np.linalg.svd(rows, compute_uv=False)
    rank = int((values > RANK_TOLERANCE * values[0]).sum())
    total = np.full((len(rows), 1), _TOTAL)
    shares = _least_squares(np.hstack([rows, total]), np.append(mixture, _TOTAL))
    return Frequencies(shares / shares.sum(), rank == len(rows))


def _least_squares(rows: Array, goal: Array) -> Array:
    """Return the x >= 0 of least |x|^2 + |x rows - goal|^2 / ``RIDGE``.

    x is max(0, rows v), where v minimises the convex dual, in as many unknowns as there are
    columns, however many rows there are. Newton's method ends when the rows above 0 stay the same.
    """
    dual = goal.astype(np.float64)
    for _ in range(_STEPS):
        raw = rows @ dual
        active = rows[raw > 0]
        gradient = RIDGE * dual + active.T @ raw[raw > 0] - goal
        curvature = RIDGE * np.eye(len(dual)) + active.T @ active
        step = np.linalg.lstsq(curvature, gradient, rcond=None)[0]
        size, before = 1.0, _dual_value(rows, dual, goal)
        slope = float(gradient @ step)
        while size > 1e-8 and _dual_value(rows, dual - size * step, goal) > (
            before - 1e-4 * size * slope
        ):
            size /= 2
        dual = dual - size * step
        if size == 1.0 and ((rows @ dual > 0) == (raw > 0)).all():
            break
    return np.maximum(rows @ dual, 0.0)


def _dual_value(rows: Array, dual: Array, goal: Array) -> float:
    positive = np.maximum(rows @ dual, 0.0)
    return float(0.5 * (RIDGE * dual @ dual + positive @ positive) - goal @ dual)


def frequencies_after_one_step(change: Array, learning_rate: float) -> Array:
    """Return p(y|s) from the change of the output bias in one step on all samples.

    Args:
        change: the device's bias less the coordinator's (labels,).
        learning_rate: of the device's step.

    Returns:
        float64 (labels,), at least 0 and of sum 1; before that, values are clipped.
    """
    raw = np.asarray(change, np.float64) / learning_rate + 1 / len(change)
    return _normalised(np.maximum(raw, 0.0))


def frequencies_after_steps(change: Array) -> Array:
    """Return about p(y|s) from the change of the output bias in any number of steps.

    The label with the least change is taken to be absent, as the paper does.
    """
    wide = np.asarray(change, np.float64)
    return _normalised(wide - wide.min())


def _normalised(values: Array) -> Array:
    """Return values of sum 1; equal ones where all are 0."""
    total = float(values.sum())
    return values / total if total > 0 else np.full(len(values), 1 / len(values))


def total_variation(one: Array, other: Array) -> float:
    """Return the distance of two label frequencies, 0 to 1."""
    return 0.5 * float(np.abs(np.asarray(one, np.float64) - np.asarray(other, np.float64)).sum())

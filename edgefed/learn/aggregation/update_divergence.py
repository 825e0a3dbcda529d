"""How far the updates of one round point in different directions: the gradient divergence.

Reisser, Louizos, Gavves, Welling: Federated Mixture of Experts, 2021, appendix D, equations 16 and
17. For one tensor with the updates d_i and the weights p_i of sum 1, and u_i = d_i / ||d_i||:

    GD = sum_ij p_i p_j (1 - <u_i, u_j>) / 2 = (1 - ||sum_i p_i u_i||^2) / 2

The right side needs one pass over the updates and one sum of the tensor's size. GD is 0 where all
updates are parallel, 1/4 for two orthogonal and 1/2 for two opposite updates of equal weight.
"""

from __future__ import annotations

import math

import numpy as np

from edgefed.errors import DataError
from edgefed.learn.aggregation.exact_mean import ExactMean
from edgefed.learn.base.types import Array, Tensors


class UpdateDivergence:
    """The divergence of weight updates that are added one at a time; any order gives the same bits.

    An update of a tensor whose norm is 0 has no direction: it is left out, and the others' weights
    are normalised without it. Tensors of integers are left out altogether.

    Args:
        specs_like: tensors with the names, shapes and kinds of those to come.
        total_weight: upper bound of the sum of all weights; see ``ExactMean``.
        fraction_bits: weights are rounded to multiples of 2^-``fraction_bits``.
    """

    def __init__(self, specs_like: Tensors, total_weight: int, fraction_bits: int = 0) -> None:
        # A mean for each tensor, because each leaves out the devices that did not change it.
        self._shapes = {n: a.shape for n, a in specs_like.items() if a.dtype.kind == "f"}
        self._directions = {
            name: ExactMean({name: specs_like[name]}, total_weight, fraction_bits)
            for name in self._shapes
        }
        self._weights = ExactMean({}, total_weight, fraction_bits)

    def add(self, update: Tensors, weight: float) -> None:
        """Add a device's update; all of it or, on an error, nothing.

        Raises:
            DataError: ``merge.shape``, ``merge.range`` or ``merge.weight``, as ``ExactMean.add``.
        """
        norms = {name: _norm(name, update, shape) for name, shape in self._shapes.items()}
        self._weights.add({}, weight)
        for name, norm in norms.items():
            if norm:
                direction = np.asarray(update[name], np.float64) / norm
                self._directions[name].add({name: direction}, weight)

    def per_tensor(self) -> dict[str, float | None]:
        """Return each tensor's divergence, 0 to 1/2; None where no update changed the tensor."""
        return {name: _divergence(name, mean) for name, mean in self._directions.items()}

    def total(self) -> float | None:
        """Return the sum over the tensors; None where no update changed anything."""
        known = [value for value in self.per_tensor().values() if value is not None]
        return math.fsum(known) if known else None


def _norm(name: str, update: Tensors, shape: tuple[int, ...]) -> float:
    """Return the Euclidean norm of an update of one tensor."""
    if name not in update or update[name].shape != shape:
        raise DataError(
            f"An update does not fit the others: {name} is missing or not of shape {shape}.",
            code="merge.shape",
            hint="every device must train the model that it was sent",
        )
    norm = _length(update[name])
    if not math.isfinite(norm):
        raise DataError(
            f"The update of {name} has values that are not finite.",
            code="merge.range",
            hint="the device's training diverged, or it sent other data",
        )
    return norm


def _length(array: Array) -> float:
    """Return the Euclidean norm, summed in float64 without BLAS, whose threads change bits."""
    return math.sqrt(float(np.square(array, dtype=np.float64).sum()))


def _divergence(name: str, mean: ExactMean) -> float | None:
    """Return the divergence of the added updates; rounding must not take it below 0."""
    if not mean.weight:
        return None
    return max(0.0, 0.5 * (1.0 - _length(mean.mean()[name]) ** 2))

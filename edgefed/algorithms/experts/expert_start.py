"""How experts begin: independently, from the most different first updates, or again when dead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from edgefed.algorithms.interface.answer import Answer
from edgefed.learn.aggregation.exact_mean import ExactMean
from edgefed.learn.base.types import Array, Tensors
from edgefed.learn.modeling.initial_weights import redrawn
from edgefed.seeds import generator

NOISE = 0.1
"""Standard deviation of the noise on an expert that starts near another one, in standard deviations
of the tensor's values."""


def independent(weights: Tensors, count: int, seed: int) -> list[Tensors]:
    """Return initial weights of experts; the first one's are those given."""
    others = (redrawn(weights, seed, "expert", expert) for expert in range(1, count))
    return [weights, *others]


def near(weights: Tensors, seed: int, *purpose: str | int) -> Tensors:
    """Return weights that differ from others by a little noise; constant tensors stay."""
    return {
        name: (array + _noise(array, seed, *purpose, name)).astype(array.dtype)
        if array.dtype.kind == "f"
        else array
        for name, array in weights.items()
    }


def _noise(array: Array, seed: int, *purpose: str | int) -> Array:
    drawn: Array = generator(seed, *purpose).standard_normal(array.shape)
    return NOISE * float(array.std()) * drawn


def from_updates(
    weights: Tensors, count: int, answers: Iterable[Answer], seed: int
) -> list[Tensors]:
    """Return experts that begin where groups of alike updates lead.

    The centres are chosen farthest first: the update that is least like the mean of all, then
    always the one that is least like its nearest centre. Each expert is the weights plus the mean,
    by samples, of the updates nearest to its centre. Where there are fewer updates than experts,
    the others begin near these.

    All updates are held at once.

    Args:
        weights: where all devices began.
        count: number of experts.
        answers: with the updates, in any order.
        seed: of the noise of experts beyond the number of updates.
    """
    # Sorted, so that the order of answers decides nothing
    given = sorted(answers, key=lambda answer: answer.device)
    deltas = [answer.groups["delta"].arrays for answer in given]
    likeness = _cosines(deltas)
    centres = farthest_first(likeness, count)
    nearest = np.argmax(likeness[:, centres], axis=1)
    nearest[centres] = np.arange(len(centres))  # also where two updates are the same
    experts = [
        _moved(
            weights, [answer for answer, place in zip(given, nearest, strict=True) if place == at]
        )
        for at in range(len(centres))
    ]
    known = len(experts)
    return experts + [near(experts[k % known], seed, "expert", k) for k in range(known, count)]


def farthest_first(likeness: Array, count: int) -> list[int]:
    """Return the numbers of up to ``count`` points that are least like each other.

    Args:
        likeness: (points, points), symmetric; larger is more alike.
        count: most centres.
    """
    centres = [int(likeness.sum(axis=1).argmin())]
    while len(centres) < min(count, len(likeness)):
        nearest = likeness[:, centres].max(axis=1)
        nearest[centres] = np.inf
        centres.append(int(nearest.argmin()))
    return centres


def _cosines(deltas: Sequence[Mapping[str, Array]]) -> Array:
    """Return the cosines between updates, rounded so that a last bit does not decide."""
    products = np.zeros((len(deltas), len(deltas)))
    for name in deltas[0]:
        rows = np.stack([np.ravel(delta[name]).astype(np.float64) for delta in deltas])
        products += rows @ rows.T
    norms = np.sqrt(np.maximum(np.diag(products), np.finfo(np.float64).tiny))
    cosines: Array = np.round(products / np.outer(norms, norms), 9)
    return cosines


def _moved(weights: Tensors, group: Sequence[Answer]) -> Tensors:
    """Return the weights plus the mean update of a group."""
    mean = ExactMean(weights, max(1, sum(answer.samples for answer in group)))
    for answer in group:
        mean.add(answer.groups["delta"].arrays, answer.samples)
    change = mean.mean()
    return {name: (array + change[name]).astype(array.dtype) for name, array in weights.items()}

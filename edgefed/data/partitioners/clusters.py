"""Feature skew: the samples of each cluster of inputs are divided in random proportions.

k-means finds clusters of similar inputs, whatever their labels, and they take the place of labels
in the Dirichlet partition. Borazjani et al., Redefining non-IID Data in Federated Learning for
Computer Vision Tasks (arXiv 2503.14553, 2025), cluster the embeddings of a network; here, inputs
are projected at random, which nearly keeps their distances (Johnson and Lindenstrauss, 1984).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edgefed.data.base.preparation import BLOCK
from edgefed.data.base.types import Array, Indices
from edgefed.data.partitioners.cover import too_few
from edgefed.errors import DataError

Points = npt.NDArray[np.float64]

DIMENSIONS = 32
"""Numbers to which a larger input is projected."""

ITERATIONS = 20
"""Steps of k-means (Lloyd's algorithm)."""


def input_clusters(inputs: Array, clusters: int, rng: np.random.Generator) -> Indices:
    """Return the cluster (n,) of each input, from 0 to ``clusters - 1``.

    Args:
        inputs: (n, …) numbers, read a block at a time.
        clusters: number of clusters; some are empty if fewer inputs differ.
        rng: draws the projection and the first centres.

    Raises:
        DataError: ``data.partition``: inputs are tokens, or fewer than clusters.
    """
    if inputs.dtype.kind != "f":
        raise DataError(
            "The partition 'clusters' compares numbers, but the inputs are tokens of a text.",
            code="data.partition",
            hint="use another partition, such as natural",
        )
    if len(inputs) < clusters:
        raise too_few(
            f"{len(inputs)} samples cannot be divided into {clusters} clusters.",
            hint="lower clusters, or use more data",
        )
    points = _projected(inputs, rng)
    centres = _first_centres(points, clusters, rng)
    for _ in range(ITERATIONS):
        nearest = _nearest(points, centres)
        sums = [np.bincount(nearest, column, clusters) for column in points.T]
        counts = np.bincount(nearest, minlength=clusters)
        means = np.stack(sums, axis=1) / np.maximum(counts, 1)[:, None]
        centres = np.where(counts[:, None] > 0, means, centres)
    return _nearest(points, centres)


def _projected(inputs: Array, rng: np.random.Generator) -> Points:
    """Return inputs as points (n, `DIMENSIONS`), or all of their numbers where these are fewer."""
    values = int(np.prod(inputs.shape[1:]))
    blocks = (inputs[start : start + BLOCK] for start in range(0, len(inputs), BLOCK))
    flat = (block.reshape(len(block), values).astype(np.float64) for block in blocks)
    if values <= DIMENSIONS:
        return np.concatenate(list(flat))
    directions = rng.normal(0, DIMENSIONS**-0.5, (values, DIMENSIONS))
    return np.concatenate([block @ directions for block in flat])


def _first_centres(points: Points, clusters: int, rng: np.random.Generator) -> Points:
    """Return points that are far from each other, as k-means++ draws them.

    Arthur and Vassilvitskii, 2007: each with a probability that is proportional to the squared
    distance from the nearest one before.
    """
    chosen = [int(rng.integers(len(points)))]
    distances = np.full(len(points), np.inf)
    while len(chosen) < clusters:
        distances = np.minimum(distances, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
        total = np.cumsum(distances)
        # Where all points are centres already, any further one is an empty cluster.
        place = np.searchsorted(total, rng.random() * total[-1], side="right")
        chosen.append(min(int(place), len(points) - 1))
    return points[chosen]


def _nearest(points: Points, centres: Points) -> Indices:
    """Return the number (n,) of each point's nearest centre; of equal ones, the first."""
    distances = (centres**2).sum(axis=1) - 2 * points @ centres.T
    nearest: Indices = np.argmin(distances, axis=1).astype(np.int64)
    return nearest

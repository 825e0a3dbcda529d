"""What somebody computes who sees mixes of a label and knows the set that records are from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgefed.sharing.label_mixes import MixSettings
from edgefed.sharing.types import Array, Indices

_STEPS = 500


def by_distance(guesses: Array, records: Array) -> Array:
    """Return how close each guess is to each record, (guesses, records), by squared distance."""
    closeness: Array = 2 * guesses @ records.T - (records**2).sum(axis=1)
    closeness -= (guesses**2).sum(axis=1, keepdims=True)
    return closeness


def by_correlation(guesses: Array, records: Array) -> Array:
    """Return the cosine of each guess with each record, less the records' mean: from -1 to 1."""
    mean = records.mean(axis=0)
    units = [_unit(each - mean) for each in (guesses, records)]
    cosines: Array = units[0] @ units[1].T
    return cosines


def _unit(rows: Array) -> Array:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    units: Array = rows / np.where(lengths > 0, lengths, 1)
    return units


def candidate_sets(
    labels: Indices, truths: Indices, size: int, generator: np.random.Generator
) -> Indices:
    """Return candidates (truths, size + 1) of the truth's label: the truth first, each once.

    Without the first column they are a set of the same size without the truth.
    """
    sets = np.empty((len(truths), size + 1), np.int64)
    for place, truth in enumerate(truths):
        same = np.flatnonzero(labels == labels[truth])
        others = generator.choice(same[same != truth], size, replace=False)
        sets[place] = (truth, *others)
    return sets


def named(scores: Array, sets: Indices) -> float:
    """Return how often the first candidate of a set has a higher score than all others."""
    found = np.take_along_axis(scores, sets, axis=1)
    return float((found[:, 0] > found[:, 1:].max(axis=1)).mean())


def told_apart(scores: Array, sets: Indices) -> float:
    """Return the area under the ROC curve of the best score, with the truth against without."""
    found = np.take_along_axis(scores, sets, axis=1)
    present, absent = found[:, :-1].max(axis=1), found[:, 1:].max(axis=1)
    above = (present[:, None] > absent).mean()
    return float(above + (present[:, None] == absent).mean() / 2)


def without_clipping(means: Array, scale: float) -> Array:
    """Return what was clipped to 0 to 1 after Laplace noise, from the mean of many such values.

    The mean of clip(m + η) is m + σ/2 (exp(-m/σ) - exp(-(1 - m)/σ)), which rises with m.
    """
    if scale == 0:
        return means
    grid = np.linspace(0, 1, 2001)
    clipped = grid + scale / 2 * (np.exp(-grid / scale) - np.exp(-(1 - grid) / scale))
    return np.asarray(np.interp(means, clipped, grid))


def spread_of_weights(settings: MixSettings) -> float:
    """Return the variance that a mix's draws add for each of a pixel: Var w_1 + Σ E w_i²."""
    if settings.width == 1:
        return 0.0
    low, high = settings.low, settings.high
    variance = (high - low) ** 2 / 12
    rest = variance + (1 - (low + high) / 2) ** 2
    return variance + rest * 2 / settings.width


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean and variance of each value of some records."""

    mean: Array
    variance: Array

    @classmethod
    def of(cls, records: Array) -> Moments:
        """Return those of records (n, values)."""
        return cls(records.mean(axis=0), records.var(axis=0))


def restored(mixes: Array, same: Moments, everything: Moments, settings: MixSettings) -> Array:
    """Return the linear estimate with the least expected error of the record in several mixes.

    Args:
        mixes: (T, values), from 0 to 1; the record dominates all of them.
        same: of the public records of its label, which is what is expected of it.
        everything: of all public ones, which is what is expected of the other samples.
        settings: how the mixes were made.
    """
    scale = settings.noise_scale
    seen = mixes.mean(axis=0)
    if settings.clip:
        seen = without_clipping(seen, scale)
    weight = (settings.low + settings.high) / 2 if settings.width > 1 else 1.0
    expected = weight * same.mean + (1 - weight) * everything.mean
    noise = (spread_of_weights(settings) * everything.variance + 2 * scale**2) / len(mixes)
    total = weight**2 * same.variance + noise
    gain = weight * same.variance / np.where(total > 0, total, 1)
    return np.asarray(np.clip(same.mean + gain * (seen - expected), 0, 1))


def psnr(guess: Array, truth: Array) -> float:
    """Return the peak signal-to-noise ratio in dB, at most 100."""
    return float(-10 * np.log10(max(float(((guess - truth) ** 2).mean()), 1e-10)))


def weights_of(mixes: Array, records: Array) -> Array:
    """Return the weights (mixes, records), at least 0 with a sum of 1, that come closest.

    Accelerated projected gradient descent.
    """
    gram, targets = records @ records.T, mixes @ records.T
    step = 1 / np.linalg.eigvalsh(gram)[-1]
    weights: Array = np.full(targets.shape, 1 / len(records))
    ahead, momentum = weights, 1.0
    for _ in range(_STEPS):
        moved = _on_simplex(ahead - step * (ahead @ gram - targets))
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = moved + (momentum - 1) / following * (moved - weights)
        weights, momentum = moved, following
    return weights


def _on_simplex(rows: Array) -> Array:
    """Return the closest rows that are at least 0 with a sum of 1."""
    falling = -np.sort(-rows, axis=1)
    excess = (falling.cumsum(axis=1) - 1) / np.arange(1, rows.shape[1] + 1)
    last = (falling > excess).sum(axis=1) - 1
    return np.asarray(np.maximum(rows - np.take_along_axis(excess, last[:, None], axis=1), 0))

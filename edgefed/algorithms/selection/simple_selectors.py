"""Selectors that need no measurements of training: random, by samples, and in turn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgefed.algorithms.selection.base import (
    Candidate,
    Selector,
    SelectorSettings,
    draw_by_weight,
)
from edgefed.config.recipes.selection_section import RANDOM


class RandomSelector(Selector[SelectorSettings]):
    """All devices with the same probability."""

    name = RANDOM
    summary = "every device with the same probability"

    def order(
        self, candidates: Sequence[Candidate], count: int, number: int, rng: np.random.Generator
    ) -> Sequence[str]:
        """Return a random order."""
        return [candidates[index].device for index in rng.permutation(len(candidates))]


class SamplesSelector(Selector[SelectorSettings]):
    """Devices by their share of the samples, without replacement.

    Li, Huang, Yang, Wang, Zhang: On the Convergence of FedAvg on Non-IID Data, ICLR 2020, scheme I
    (there with replacement): the answers are then averaged with equal weights.
    """

    name = "samples"
    summary = "devices with many samples more often"
    paper = "Li et al., ICLR 2020, arXiv 1907.02189"

    def order(
        self, candidates: Sequence[Candidate], count: int, number: int, rng: np.random.Generator
    ) -> Sequence[str]:
        """Return a draw by samples."""
        drawn = draw_by_weight([candidate.samples for candidate in candidates], rng)
        return [candidates[index].device for index in drawn]


class RoundRobinSelector(Selector[SelectorSettings]):
    """Devices in turn: those first that were not asked for the longest time."""

    name = "round-robin"
    summary = "devices in turn, the one that waited longest first"

    def order(
        self, candidates: Sequence[Candidate], count: int, number: int, rng: np.random.Generator
    ) -> Sequence[str]:
        """Return the devices by the round in which they were last asked, ties at random."""
        ties = rng.permutation(len(candidates))
        ranked = sorted(range(len(candidates)), key=lambda at: (candidates[at].last, ties[at]))
        return [candidates[index].device for index in ranked]

"""Match the units of one group of devices, with FedMA's settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgefed.algorithms.matched.fedma_settings import FedMaSettings
from edgefed.learn.base.permutation_groups import PermutationGroups
from edgefed.learn.base.types import Array, Tensors
from edgefed.learn.matching.layer import Matched, match_layer
from edgefed.learn.matching.layer_merging import LayerAveraging, recurrent_blocks
from edgefed.learn.matching.recurrence import refined_by_recurrence
from edgefed.seeds import generator

PRIOR_BIAS = 0.1
"""Prior mean of biases in the published implementation."""


@dataclass(frozen=True)
class GroupMatching:
    """Matches groups of one step; see ``layer_merging.Match``.

    Attributes:
        settings: of the algorithm.
        local: the network's groups with a device's widths.
        groups: those with the widths that earlier steps found.
        samples: float64 (devices,), the weight of each device by its samples.
        seed: of all matchings of the run.
        round: number of rounds that are complete.
        step: number of the step, from 0.
    """

    settings: FedMaSettings
    local: PermutationGroups
    groups: PermutationGroups
    samples: Array
    seed: int
    round: int
    step: int

    def __call__(self, group: str, vectors: Sequence[Array], weights: Sequence[Tensors]) -> Matched:
        """Return the matching of a group's units."""
        settings = self.settings.match_settings(self.local.widths[group])
        rng = generator(self.seed, "match", self.round, group)
        mean, precisions = self._prior_mean(vectors[0].shape[1]), self._precisions()
        classes = self.local.unit_classes(group)
        matched = match_layer(
            vectors,
            settings=settings,
            rng=rng,
            mean=mean,
            precisions=precisions,
            classes=None if classes is None else [classes] * len(vectors),
            grow=classes is None,
        )
        recurrence: Sequence[Array] = ()
        if self.settings.quadratic:
            recurrence = recurrent_blocks(weights, self.groups, group)
        if not recurrence:
            return matched
        return refined_by_recurrence(
            matched,
            vectors,
            recurrence,
            settings=settings,
            rng=rng,
            mean=mean,
            precisions=precisions,
        )

    def _precisions(self) -> list[float] | None:
        """Return how precise each device's units are; None for all alike."""
        if self.settings.weighting == "uniform":
            return None
        return [float(samples) for samples in self.samples / self.samples.mean()]

    def _prior_mean(self, numbers: int) -> Array:
        """Return the prior mean of a unit's numbers.

        The published implementation gives the bias another one than the weights; behind the first
        layer it takes the first weight for the bias.
        """
        mean = np.zeros(numbers)
        if self.settings.reference:
            mean[-1 if self.step == 0 else 0] = PRIOR_BIAS
        return mean


def averaging_of(settings: FedMaSettings) -> LayerAveraging:
    """Return how units that are the same are averaged."""
    average = settings.match_settings(1).average
    padded = settings.recurrent == "padded" or settings.reference
    return LayerAveraging(average == "map", padded, average == "all")

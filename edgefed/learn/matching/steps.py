"""The order in which the layers of a network are matched.

Each step merges one layer and fixes the order of its units: by matching, or by the order of an
earlier layer of the same group, because all terms of a residual connection have one order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from edgefed.learn.base.permutation_groups import Layer, PermutationGroups
from edgefed.learn.base.types import Tensors

Decides = Literal["first", "ready"]
"""Which layers decide a group that several make: the ``first`` one, or with it all whose inputs are
matched by then (``ready``)."""

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
"""Last words of the names of batch normalisation's statistics, which are not part of a layer: they
are estimated again when all layers are matched."""


@dataclass(frozen=True)
class MatchingStep:
    """One step: layers that are merged together.

    Attributes:
        name: of the first of the layers.
        layers: one, or several that decide a group together.
        decides: groups that are matched in this step; none for a layer that follows, and for the
            output layer.
    """

    name: str
    layers: tuple[Layer, ...]
    decides: tuple[str, ...]

    @property
    def weights(self) -> tuple[str, ...]:
        """Names of the layers' weights, without statistics."""
        names = (name for layer in self.layers for name in layer.weights)
        return tuple(name for name in names if not is_statistic(name))

    @property
    def compared(self) -> tuple[str, ...]:
        """Names of the weights by which units are matched."""
        return tuple(name for layer in self.layers for name in layer.compared)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Groups of the layers' units; none for the output layer."""
        return tuple(dict.fromkeys(name for layer in self.layers for name in layer.outputs))


def matching_steps(
    groups: PermutationGroups, decides: Decides = "first"
) -> tuple[MatchingStep, ...]:
    """Return the steps of a network; the last one is its output layer."""
    steps: list[MatchingStep] = []
    decided: set[str] = set()
    waiting = list(groups.layers)
    while waiting:
        first = waiting.pop(0)
        new = tuple(group for group in first.outputs if group not in decided)
        together = [first]
        if decides == "ready" and new:
            together += [layer for layer in waiting if _is_ready(layer, set(new), decided)]
            waiting = [layer for layer in waiting if layer not in together]
        steps.append(MatchingStep(first.name, tuple(together), new))
        decided |= set(new)
    return tuple(steps)


def _is_ready(layer: Layer, new: set[str], decided: set[str]) -> bool:
    """Whether a later layer can help to decide new groups."""
    outputs = set(layer.outputs)
    return bool(outputs & new) and outputs <= new | decided and set(layer.inputs) <= decided


def is_statistic(name: str) -> bool:
    """Return whether a weight is one of batch normalisation's statistics."""
    return name.rpartition(".")[2] in STATISTICS


def statistics_of(names: Mapping[str, object] | Tensors) -> tuple[str, ...]:
    """Return the names of batch normalisation's statistics."""
    return tuple(name for name in names if is_statistic(name))

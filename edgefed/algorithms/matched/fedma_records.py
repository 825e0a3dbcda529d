"""The state of FedMA, and names on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.config.recipes.recipe import ModelSection
from edgefed.learn.base.permutation_groups import PermutationGroups
from edgefed.learn.base.types import Array, Tensors
from edgefed.learn.matching.steps import Decides, MatchingStep, matching_steps
from edgefed.learn.modeling.network_groups import permutation_groups, resized

WEIGHTS = "weights"
"""Group of the state: the last complete global model."""

MATCHED = "matched"
"""Group of the state: the layers that are matched in the round under way."""

ATOMS, NEW_ATOMS = "atoms", "new-atoms"
"""Groups of the state: by ``GROUP/DEVICE``, the assignments of the last complete round and of the
round under way. ``atoms`` is also a role in a task."""

COUNTS, NEW_COUNTS = "counts", "new-counts"
"""Groups of the state: by permutation group, how many devices have each atom."""

NETWORK = "network"
"""Key of the state's ``params``: the data from which the network's groups are made."""

STEP, DEVICES, SEED, LAYERS, GROWTH = "step", "devices", "seed", "layers", "growth"
"""Further keys: the next step of the round, the devices that take part in it, the seed of all
matchings, reports of the layers, and how much larger than a device's the global model is."""

LAYER, STATISTICS = "layer", "statistics"
"""Roles of an answer: a step's layers, and batch normalisation's statistics."""


@dataclass(frozen=True)
class MatchedNetwork:
    """The network of a run on the devices, and the order in which it is matched.

    Attributes:
        section: the recipe's, complete.
        shape: of one input.
        classes: number of labels.
        decides: as the setting.
    """

    section: ModelSection
    shape: tuple[int, ...]
    classes: int
    decides: Decides

    @classmethod
    def of(cls, state: State) -> MatchedNetwork:
        """Return the network that a state belongs to."""
        known = state.params[NETWORK]
        section = ModelSection.model_validate(known["section"])
        return cls(section, tuple(known["shape"]), known["classes"], known["decides"])

    def to_json(self) -> dict[str, Any]:
        """Return the network as a state's ``params`` hold it."""
        section = self.section.model_dump(mode="json")
        return {
            "section": section,
            "shape": list(self.shape),
            "classes": self.classes,
            "decides": self.decides,
        }

    @cached_property
    def local(self) -> PermutationGroups:
        """The groups with a device's widths."""
        return permutation_groups(self.section, self.shape, self.classes)

    @cached_property
    def steps(self) -> tuple[MatchingStep, ...]:
        """The steps of a round."""
        return matching_steps(self.local, self.decides)

    def with_widths(self, widths: Mapping[str, int]) -> ModelSection:
        """Return the section with some widths of the global model, and a device's others."""
        return resized(self.section, {**self.local.widths, **widths})


def widths_of(counts: Tensors) -> dict[str, int]:
    """Return the number of atoms of each group."""
    return {group: len(atom_counts) for group, atom_counts in counts.items()}


def atoms_of(state: State, kind: str, device: str) -> dict[str, Array]:
    """Return a device's assignments by group; ``kind`` is ``ATOMS`` or ``NEW_ATOMS``."""
    assignments = {}
    for name, indices in state.groups.get(kind, {}).items():
        group, _, owner = name.partition("/")
        if owner == device:
            assignments[group] = indices
    return assignments


def part(weights: Tensors, names: Sequence[str]) -> Tensors:
    """Return some of the weights, in the order of ``names``."""
    return {name: weights[name] for name in names}


def begins(exchange: Exchange) -> bool:
    """Return whether an exchange asks for the first layer of a round."""
    return any(question.params.get(STEP) == 0 for question in exchange.questions)


def begun_anew(state: State) -> State:
    """Return the state before the first layer of its round, with no layer matched."""
    nothing: dict[str, Tensors] = {MATCHED: {}, NEW_ATOMS: {}, NEW_COUNTS: {}}
    return State(state.round, {**state.groups, **nothing}, {**state.params, STEP: 0})

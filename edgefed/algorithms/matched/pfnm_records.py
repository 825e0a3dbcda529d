"""The state of PFNM's coordinator half: the global network, and the devices' assignments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property

import numpy as np

from edgefed.algorithms.interface.base import State
from edgefed.algorithms.matched.growth import growth_of
from edgefed.algorithms.matched.matched_layers import LayerMatch
from edgefed.config.recipes.recipe import ModelSection
from edgefed.learn.base.permutation_groups import PermutationGroups
from edgefed.learn.base.types import Tensors
from edgefed.learn.base.unit_moves import gather, most_held
from edgefed.learn.matching.mlp import MatchedPerceptron
from edgefed.learn.modeling.initial_weights import redrawn
from edgefed.learn.modeling.model_building import complete_model
from edgefed.learn.modeling.network_groups import permutation_groups, resized


@dataclass(frozen=True)
class PfnmRecords:
    """A state of PFNM.

    Attributes:
        section: the network of a device.
        seed: of initial weights and of matchings.
        weights: of the global network.
        matched: the round in which it was matched; 0 before the first.
        assignments: by device that took part, its units' atoms: int64 by permutation group.
        counts: number of these that hold each atom: int64 by permutation group.
        layers: report of each layer's matching.
    """

    section: ModelSection
    seed: int
    weights: Tensors
    matched: int
    assignments: Mapping[str, Tensors]
    counts: Tensors
    layers: tuple[LayerMatch, ...]

    # -- the state ------------------------------------------------------------------------------

    @classmethod
    def first(cls, weights: Tensors, section: ModelSection | None, seed: int) -> PfnmRecords:
        """Return the records before the first round.

        Args:
            weights: initial ones of a device's network.
            section: that network; None for a perceptron without further settings.
            seed: of all draws.
        """
        known = complete_model(section or _perceptron(weights))
        records = cls(known, seed, weights, 0, {}, {}, ())
        widths = records.groups.widths.items()
        return replace(
            records,
            counts={group: np.zeros(width, np.int64) for group, width in widths},
            layers=tuple(LayerMatch(group, width) for group, width in widths),
        )

    @classmethod
    def of(cls, state: State) -> PfnmRecords:
        """Return the records that a state holds."""
        assignments: dict[str, Tensors] = {}
        for name, atoms in state.groups["assignments"].items():
            device, _, group = name.partition("/")
            assignments.setdefault(device, {})[group] = atoms
        return cls(
            section=ModelSection.model_validate(state.params["model"]),
            seed=state.params["seed"],
            weights=state.groups["weights"],
            matched=state.params["matched"],
            assignments=assignments,
            counts=state.groups["counts"],
            layers=tuple(LayerMatch(**row) for row in state.params["layers"]),
        )

    def kept_in(self, number: int) -> State:
        """Return the state that holds the records after so many rounds."""
        assignments = {
            f"{device}/{group}": atoms
            for device, held in self.assignments.items()
            for group, atoms in held.items()
        }
        groups = {"weights": self.weights, "assignments": assignments, "counts": self.counts}
        params = {
            "model": self.section.model_dump(mode="json"),
            "seed": self.seed,
            "matched": self.matched,
            "layers": [asdict(layer) for layer in self.layers],
        }
        return State(number, groups, params)

    def after(self, number: int, devices: Sequence[str], match: MatchedPerceptron) -> PfnmRecords:
        """Return the records after the matching of a round.

        Args:
            number: of the round.
            devices: whose networks were matched, in the order of the assignments.
            match: of the networks.
        """
        assignments = {
            device: {group: layer.assignments[place] for group, layer in match.layers.items()}
            for place, device in enumerate(devices)
        }
        layers = tuple(
            LayerMatch(
                group,
                self.groups.widths[group],
                len(layer.counts),
                float(layer.counts.mean()),
                layer.objective,
                layer.apart,
            )
            for group, layer in match.layers.items()
        )
        return replace(
            self,
            weights={
                name: array.astype(self.weights[name].dtype)
                for name, array in match.weights.items()
            },
            matched=number,
            assignments=assignments,
            counts={group: layer.counts for group, layer in match.layers.items()},
            layers=layers,
        )

    # -- what follows from it -------------------------------------------------------------------

    @cached_property
    def groups(self) -> PermutationGroups:
        """The permutation groups of a device's network."""
        first = next(iter(self.weights.values()))
        return permutation_groups(self.section, first.shape[1:], self.outputs)

    @property
    def outputs(self) -> int:
        """The number of outputs of the network, and of classes where it distinguishes these."""
        return len(next(reversed(self.weights.values())))

    @property
    def widths(self) -> dict[str, int]:
        """The units of each hidden layer of the global network."""
        return {group: len(counts) for group, counts in self.counts.items()}

    @property
    def matched_section(self) -> ModelSection:
        """The global network."""
        return resized(self.section, self.widths)

    def assignment(self, device: str) -> Tensors:
        """Return the atoms of a device's units; without an assignment, the most held ones."""
        if device in self.assignments:
            return dict(self.assignments[device])
        return most_held(self.counts, self.groups.widths)

    def start(self, device: str, seed: int | None = None) -> Tensors:
        """Return the weights from which a device trains; see ``own_start``."""
        return own_start(self.weights, self.groups, self.assignment(device), seed)

    @property
    def growth(self) -> float | None:
        """Parameters of the global network divided by a device's; None before it was matched."""
        return growth_of(self.weights, self.groups) if self.matched else None


def own_start(
    weights: Tensors, groups: PermutationGroups, assignment: Tensors, seed: int | None
) -> Tensors:
    """Return the weights from which a device trains: its units of the global network.

    Args:
        weights: of the global network.
        groups: of a device's network.
        assignment: the atoms of the device's units.
        seed: of initial weights of the device's own; None for those gathered.
    """
    widths = {layer.outputs[0]: len(weights[layer.compared[1]]) for layer in groups.layers[:-1]}
    gathered = gather(weights, groups, groups.resized(widths), assignment)
    return gathered if seed is None else redrawn(gathered, seed, "initial")


def _perceptron(weights: Tensors) -> ModelSection:
    """Return the section of a perceptron with these weights."""
    *hidden, _ = (len(array) for array in weights.values() if array.ndim == 2)
    return ModelSection.model_validate({"name": "mlp", "hidden": hidden})

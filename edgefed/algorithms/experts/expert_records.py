"""The state of a mixture of experts: names of groups and roles, and mixtures of devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from edgefed.algorithms.interface.base import State
from edgefed.learn.base.types import Array, Tensors

TABLE, GATE, MIXTURE, PHI = "table", "gate", "mixture", "phi"
MIXTURES, STEPS, TABLE_STEPS, SEED = "mixtures", "steps", "table_steps", "seed"
BEGUN, UNUSED = "begun", "unused"


COLLECT = "gates"
"""The exchange that collects gates, and the group and parameter of the state that keep them."""

DENSITIES = "densities"
"""The group and the parameter that keep the densities that came with gates."""

EXPERT = "expert-"
"""Before an expert's number in the names of its group, payload and role."""


def role(expert: int) -> str:
    """Return the name of an expert's group, payload and role."""
    return f"{EXPERT}{expert}"


def memory_of(group: str) -> str:
    """Return the name of the group that holds a group's optimiser memory."""
    return f"{group}-memory"


@dataclass(frozen=True)
class KnownMixture:
    """The coordinator's record of a device that has answered.

    Attributes:
        shares: q(z|s), which selects the experts to send (experts,).
        kept: numbers of the experts that it used.
        samples: behind its answer.
        round: of the answer.
    """

    shares: tuple[float, ...]
    kept: tuple[int, ...]
    samples: int
    round: int

    @classmethod
    def from_json(cls, known: Mapping[str, Any]) -> KnownMixture:
        """Return the record that ``to_json`` wrote."""
        shares, kept = tuple(known["shares"]), tuple(known["kept"])
        return cls(shares, kept, known["samples"], known["round"])

    def to_json(self) -> dict[str, Any]:
        """Return the record as a state's ``params`` can hold it."""
        return asdict(self)


def mixtures_of(state: State) -> dict[str, KnownMixture]:
    """Return the record of every device that has answered, by device."""
    known: Mapping[str, Any] = state.params.get(MIXTURES, {})
    return {device: KnownMixture.from_json(record) for device, record in sorted(known.items())}


def output_width(weights: Tensors) -> int:
    """Return the number of features that a model's output layer takes."""
    return int(output_weight(weights).shape[1])


def output_classes(weights: Tensors) -> int:
    """Return the number of a model's logits."""
    return int(output_weight(weights).shape[0])


def output_weight(weights: Tensors) -> Array:
    """Return the last matrix (classes, width) of a model: its output layer's weight."""
    return [array for array in weights.values() if array.ndim == 2][-1]


def experts_of(state: State, count: int) -> list[Tensors]:
    """Return the weights of all experts."""
    return [state.groups[role(expert)] for expert in range(count)]

"""The answer of a device, and remarks to the operator after answers were merged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edgefed.algorithms.interface.device_side import LedgerEntry
from edgefed.algorithms.interface.exchange import Relay
from edgefed.config.recipes.sections import CodecName
from edgefed.learn.base.types import Tensors


@dataclass(frozen=True)
class Group:
    """Arrays that a device sends.

    Attributes:
        arrays: by name.
        codec: of the arrays; None for the task's codec, with error feedback where the recipe sets
            it.
    """

    arrays: Tensors
    codec: CodecName | None = None


@dataclass(frozen=True)
class Answer:
    """A device's answer, as its algorithm gives it and, decoded, as the coordinator's half gets it.

    Attributes:
        device: the answering device; set by the code that delivers the answer.
        samples: number of samples behind it.
        groups: arrays by role, such as ``delta``.
        metrics: numbers, such as ``loss``.
        private: state to keep on the device, replaced together with this answer or not at all;
            never sent.
        if_accepted: groups of that state that replace those of their names only if this answer is
            merged, as the device's next task says; for algorithms that declare
            ``keeps_if_accepted``.
        device_state: groups of arrays by name to keep across runs, committed together with this
            answer; a group replaces the one of its name, an empty one deletes it; never sent.
        ledger: entries to append to the device's record of releases, committed together with this
            answer; never sent.
        relays: bytes for other devices, by device; the coordinator forwards them and does not
            decode them. The coordinator's half gets ``relayed`` instead.
        relayed: references to them, sorted by receiver; for ``Question.relays`` of a later
            exchange.
    """

    device: str
    samples: int
    groups: Mapping[str, Group]
    metrics: Mapping[str, float] = field(default_factory=dict)
    private: Mapping[str, Tensors] = field(default_factory=dict)
    if_accepted: Mapping[str, Tensors] = field(default_factory=dict)
    device_state: Mapping[str, Tensors] = field(default_factory=dict)
    ledger: tuple[LedgerEntry, ...] = ()
    relays: Mapping[str, bytes] = field(default_factory=dict)
    relayed: tuple[Relay, ...] = ()


@dataclass(frozen=True)
class Remark:
    """A message to the operator after an exchange was merged.

    Attributes:
        warning: whether the run deviates from its recipe.
    """

    text: str
    warning: bool = False

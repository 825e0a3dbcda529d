"""The outcome of a task on a device, before it is encoded as a reply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from edgefed.algorithms.interface.device_side import LedgerEntry
from edgefed.learn.base.types import Tensors


@dataclass(frozen=True)
class Outcome:
    """An answer, encoded, and the private state that goes with it.

    Attributes:
        status, reason, samples, metrics: as in the wire's ``Reply``.
        blobs: encoded arrays by role.
        private: replaces the device's private state when, and only when, the answer is kept.
        device_state, ledger: changes of the device's state across runs, committed with the answer;
            see ``Answer``.
        relays: bytes for other devices, by device.
        seconds: that a virtual device's work took, without waiting for its turn; 0 if not measured.
            Two outcomes of the same work are equal.
    """

    status: Literal["ok", "refused", "failed"]
    reason: str = ""
    samples: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    private: Mapping[str, Tensors] = field(default_factory=dict)
    device_state: Mapping[str, Tensors] = field(default_factory=dict)
    ledger: tuple[LedgerEntry, ...] = ()
    relays: Mapping[str, bytes] = field(default_factory=dict)
    seconds: float = field(default=0.0, compare=False)

"""Statistics of a round's replies: answers, refusals, loss, time and bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edgefed.errors import DIVERGED, LOWER_RATE
from edgefed.wire.messages import Reply


@dataclass
class ReplyStats:
    """Counts of one exchange, summed over a round.

    Attributes:
        accepted, declined: answers merged; replies refused, failed or rejected.
        diverged: how many of the declined were so because training diverged; not written down.
        devices: whose answers were merged; not written down.
        reason: why the last of the declined was; not written down.
    """

    accepted: int = 0
    declined: int = 0
    diverged: int = 0
    devices: set[str] = field(default_factory=set)
    reason: str = ""
    _loss: float = 0.0
    _samples: int = 0

    def accept(self, reply: Reply) -> None:
        """Count a merged reply."""
        self.accepted += 1
        self.devices.add(reply.device)
        if "loss" in reply.metrics:
            self._loss += reply.metrics["loss"] * reply.samples
            self._samples += reply.samples

    def decline(self, reason: str) -> None:
        """Count a reply that is not merged."""
        self.declined += 1
        self.diverged += reason.startswith(DIVERGED)
        self.reason = reason

    def shortfall(self, asked: int, deadline: float) -> str:
        """Return in words how many of those ``asked`` were not merged, and why."""
        silent = asked - self.accepted - self.declined
        parts = (
            [f"{silent} had not answered when rounds.deadline ({deadline:g} s) passed"]
            if silent
            else []
        )
        if self.declined:
            parts.append(f"{self.declined} could not, the last because: {self.reason.rstrip('.')}")
        return "; ".join(parts)

    def advice(self, rate: float) -> str:
        """Return what an operator can do after a missed quorum; ``rate`` is the learning rate."""
        if self.diverged:
            return f"{LOWER_RATE}, now {rate:g}, and start again"
        return (
            "see edgefed device list; then edgefed run resume, or start again with a longer "
            "rounds.deadline or a smaller rounds.quorum"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the counts, to be written down."""
        return {
            "accepted": self.accepted,
            "declined": self.declined,
            "loss": self._loss,
            "samples": self._samples,
        }

    @classmethod
    def from_json(cls, counts: Mapping[str, Any]) -> ReplyStats:
        """Return the tally of counts that were written down; of none, an empty one."""
        return cls(
            accepted=counts.get("accepted", 0),
            declined=counts.get("declined", 0),
            _loss=counts.get("loss", 0.0),
            _samples=counts.get("samples", 0),
        )

    @property
    def loss(self) -> float | None:
        """Mean loss that the devices reported, weighted by their samples."""
        return self._loss / self._samples if self._samples else None

    def add(self, other: ReplyStats) -> None:
        """Add another exchange of the same round."""
        self.accepted += other.accepted
        self.declined += other.declined
        self.devices |= other.devices
        self._loss += other._loss
        self._samples += other._samples


@dataclass
class DeviceScores:
    """The devices' own tests; their means do not depend on the order in which they came.

    Attributes:
        names: what they measure; what one does not tell counts as 0.
    """

    names: tuple[str, ...] = ("accuracy", "loss")
    samples: int = 0
    _parts: dict[str, list[float]] = field(default_factory=dict)

    def add(self, samples: int, metrics: Mapping[str, float]) -> None:
        """Add one device's test on so many held-out samples."""
        self.samples += samples
        for name in self.names:
            self._parts.setdefault(name, []).append(samples * metrics.get(name, 0.0))

    def means(self) -> dict[str, float]:
        """Return the means over all samples; ``fsum`` rounds once, so any order gives the same."""
        return {name: math.fsum(parts) / self.samples for name, parts in self._parts.items()}

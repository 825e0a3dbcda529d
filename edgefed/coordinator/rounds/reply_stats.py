"""Statistics of a round's replies: answers, refusals, loss, time and bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edgefed.algorithms.interface.device_side import MODE
from edgefed.algorithms.selection.measurements import Measured
from edgefed.config.recipes.recipe import EvaluationWeighting
from edgefed.errors import DIVERGED, LOWER_RATE
from edgefed.wire.messages import Reply

BECAUSE = ", the last because: "
"""Stands before the reason of the last declined reply."""


@dataclass
class ReplyStats:
    """Counts of one exchange, summed over a round.

    Attributes:
        accepted, declined: answers merged; replies refused, failed or rejected.
        diverged: how many of the declined were so because training diverged; not written down.
        devices: whose answers were merged, with their samples; not written down.
        refused: devices whose replies are among the declined; not written down.
        reason: of the last declined reply; not written down.
        answers: measurements of the merged answers, by device; not written down here.
        slowest, slowest_seconds: the device whose merged answer took longest, and how long.
        joules: energy that the devices took for the merged answers; None if none measured it.
        summed: answers merged that came in sums of sites.
    """

    accepted: int = 0
    declined: int = 0
    diverged: int = 0
    devices: dict[str, int] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    reason: str = ""
    answers: dict[str, Measured] = field(default_factory=dict)
    slowest: str = ""
    slowest_seconds: float = 0.0
    joules: float | None = None
    summed: int = 0
    _loss: float = 0.0
    _samples: int = 0

    def accept(self, reply: Reply, seconds: float = 0.0) -> None:
        """Count a merged reply that came after so many seconds."""
        self.accepted += 1
        # A device counts once, so its samples are set and not added
        self.devices[reply.device] = reply.samples
        self._slow(reply.device, round(seconds, 3))
        self._consume(reply.cost.joules)
        steps = int(reply.metrics.get("steps", 0))
        self.answers[reply.device] = Measured(reply.metrics.get("loss"), round(seconds, 6), steps)
        if "loss" in reply.metrics:
            self._loss += reply.metrics["loss"] * reply.samples
            self._samples += reply.samples

    def _consume(self, joules: float | None) -> None:
        if joules is not None:
            self.joules = round((self.joules or 0.0) + joules, 3)

    def _slow(self, device: str, seconds: float) -> None:
        if seconds > self.slowest_seconds:
            self.slowest, self.slowest_seconds = device, seconds

    def decline(self, device: str, reason: str) -> None:
        """Count a reply that is not merged."""
        self.declined += 1
        self.refused.add(device)
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
            parts.append(f"{self.declined} could not{BECAUSE}{self.reason.rstrip('.')}")
        return "; ".join(parts)

    def advice(self, rate: float) -> str:
        """Return advice for the operator after a missed quorum; ``rate`` is the learning rate."""
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
            "slowest": self.slowest,
            "slowest_seconds": self.slowest_seconds,
            "joules": self.joules,
            "summed": self.summed,
        }

    @classmethod
    def from_json(cls, counts: Mapping[str, Any]) -> ReplyStats:
        """Return the tally of counts that were written down; of none, an empty one."""
        return cls(
            accepted=counts.get("accepted", 0),
            declined=counts.get("declined", 0),
            slowest=counts.get("slowest", ""),
            slowest_seconds=counts.get("slowest_seconds", 0.0),
            joules=counts.get("joules"),
            summed=counts.get("summed", 0),
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
        self.summed += other.summed
        self.devices |= other.devices
        self._slow(other.slowest, other.slowest_seconds)
        self._consume(other.joules)
        self._loss += other._loss
        self._samples += other._samples


@dataclass
class DeviceScores:
    """The devices' own tests; their means do not depend on the order of arrival.

    Devices that report a mode (``EvalJob.mode``) also have means of their own.

    Attributes:
        names: of the scores; a score that a device does not report counts as 0.
        weighting: whether every sample weighs the same, or every device.
    """

    names: tuple[str, ...] = ("accuracy", "loss")
    weighting: EvaluationWeighting = "samples"
    devices: int = 0
    _all: _Means = field(default_factory=lambda: _Means())  # noqa: PLW0108 - defined below
    _modes: dict[str, _Means] = field(default_factory=dict)

    def add(self, samples: int, metrics: Mapping[str, float]) -> None:
        """Add one device's test on so many held-out samples."""
        weight = samples if self.weighting == "samples" else 1
        values = {name: metrics.get(name, 0.0) for name in self.names}
        self.devices += 1
        self._all.add(weight, values)
        for name in metrics:
            if name.startswith(MODE):
                self._modes.setdefault(name.removeprefix(MODE), _Means()).add(weight, values)

    def means(self) -> dict[str, float]:
        """Return the means over all devices by name."""
        return self._all.means()

    def means_by_mode(self) -> dict[str, float]:
        """Return the means and the number of devices of each mode, as ``accuracy_MODE``."""
        means: dict[str, float] = {}
        for mode, part in sorted(self._modes.items()):
            means |= {f"{name}_{mode}": mean for name, mean in part.means().items()}
            means[f"devices_{mode}"] = float(part.count)
        return means


@dataclass
class _Means:
    """Weighted means of several values; ``fsum`` rounds once, so any order gives the same."""

    weight: int = 0
    count: int = 0
    _parts: dict[str, list[float]] = field(default_factory=dict)

    def add(self, weight: int, values: Mapping[str, float]) -> None:
        self.weight += weight
        self.count += 1
        for name, value in values.items():
            self._parts.setdefault(name, []).append(weight * value)

    def means(self) -> dict[str, float]:
        # Products are kept apart until here, so the sum is rounded once
        return {name: math.fsum(parts) / self.weight for name, parts in self._parts.items()}

"""The stages of a rollout, as a pure function of the devices' answers.

A rollout asks a first small group of devices, and the next group once the group before has
answered. It stops when too large a share refuses. The engine serves any kind of rollout.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from edgefed.terminal.units import counted

Verdict = Literal["taken", "refused", "skipped"]
"""A device's answer; ``skipped`` devices do not count, such as those whose owner declines."""

Status = Literal["active", "finished", "stopped", "replaced", "withdrawn"]
"""``stopped``: too many refused; ``replaced`` by a later rollout; ``withdrawn`` by an operator."""

LIVE: tuple[Status, ...] = ("active", "finished")
"""States in which devices that were asked, and have not answered, are asked again."""


@dataclass(frozen=True)
class Stages:
    """A rollout's plan and progress.

    Attributes:
        order: all devices, in the order in which they are asked.
        shares: of the devices that each stage asks, with those before; the last one is 1.
        stop_at: share of refusals above which it stops.
        stage: the current one, from 0.
        status: of the rollout.
        verdicts: of the devices that have answered.
    """

    order: tuple[str, ...]
    shares: tuple[float, ...]
    stop_at: float
    stage: int = 0
    status: Status = "active"
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)

    @property
    def asked(self) -> tuple[str, ...]:
        """The devices that the stages so far ask; at least one."""
        count = self.shares[self.stage] * len(self.order)
        return self.order[: math.ceil(round(count, 6))]  # 7 / 25 * 25 is more than 7

    def count(self, verdict: Verdict) -> int:
        """Return how many devices that were asked gave a verdict."""
        return sum(self.verdicts.get(device) == verdict for device in self.asked)

    def waited(self, online: Collection[str]) -> list[str]:
        """Return the devices that were asked, are connected, and have not answered."""
        return [d for d in self.asked if d in online and d not in self.verdicts]

    def with_verdict(self, device: str, verdict: Verdict) -> Stages:
        """Return the stages after a device's answer, which replaces an earlier one."""
        return replace(self, verdicts={**self.verdicts, device: verdict})

    def with_device(self, device: str) -> Stages:
        """Return the stages with a device that joined later, which is the last to be asked."""
        return self if device in self.order else replace(self, order=(*self.order, device))


def progress_text(about: str, stages: Stages) -> tuple[Literal["info", "warning"], str]:
    """Return the level and the text of a note on a rollout's progress."""
    if stages.status == "active":
        asked = f"{len(stages.asked)} of {counted(len(stages.order), 'device')}"
        return "info", f"{about}: stage {stages.stage + 1} of {len(stages.shares)}, {asked}"
    if stages.status == "stopped":
        refused = f"{stages.count('refused')} of {counted(len(stages.asked), 'device')}"
        return "warning", f"{about}: stopped, {refused} refused it"
    return "info", f"{about}: {stages.status}"


def drawn_order(seed: str, devices: Iterable[str]) -> tuple[str, ...]:
    """Return devices in an order that only the seed and their names decide."""
    return tuple(
        sorted(devices, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())
    )


def next_step(stages: Stages, online: Collection[str]) -> Stages:
    """Return the stages that the answers so far allow; the same object if nothing changes.

    A stage is over when every connected device that was asked has answered, and half of all those
    that were asked. The others are asked when they return.

    Args:
        stages: before.
        online: the connected devices.
    """
    if stages.status != "active":
        return stages
    waited, taken, refused = stages.waited(online), stages.count("taken"), stages.count("refused")
    if refused > stages.stop_at * (taken + refused + len(waited)):
        return replace(stages, status="stopped")
    answered = taken + refused + stages.count("skipped")
    if waited or 2 * answered < len(stages.asked):
        return stages
    if stages.stage + 1 == len(stages.shares):
        return replace(stages, status="finished")
    return next_step(replace(stages, stage=stages.stage + 1), online)

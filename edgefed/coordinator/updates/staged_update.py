"""A release that devices are offered in stages: the plan, and the verdicts in their reports."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from edgefed.coordinator.rollouts.staging import Stages, Verdict, drawn_order

SKIPPED = ("off", "waiting")
"""Phases of devices whose owner declines, or has to be asked; the stage does not wait for them."""


@dataclass(frozen=True)
class StagedUpdate:
    """A staged rollout of a release.

    Attributes:
        offer: id of the offer that its devices get.
        release: name of the release.
        during_run: whether versions may change within a run.
        stages: the plan and the progress; a device that runs the release has ``taken`` it.
    """

    offer: str
    release: str
    during_run: bool
    stages: Stages

    @property
    def about(self) -> str:
        """The rollout in words."""
        return f"release {self.release} of the agent"

    def with_reports(
        self, offers: Mapping[str, Mapping[str, Any]], states: Mapping[str, Mapping[str, str]]
    ) -> StagedUpdate:
        """Return the rollout with the verdicts that the devices' last reports give.

        Args:
            offers: the last offer of each device.
            states: the last report of each device.
        """
        verdicts = dict(self.stages.verdicts)
        for device in self.stages.asked:
            verdict = self._verdict(offers.get(device, {}), states.get(device, {}))
            if verdict is not None:
                verdicts[device] = verdict
        return replace(self, stages=replace(self.stages, verdicts=verdicts))

    def _verdict(self, offer: Mapping[str, Any], state: Mapping[str, str]) -> Verdict | None:
        if state.get("offer") != self.offer:
            return "skipped" if offer.get("id") != self.offer else None
        if state["phase"] in SKIPPED:
            return "skipped"
        if state["phase"] != "idle":
            return None
        return "taken" if state["release"] == self.release else "refused"

    def at_work(self, states: Mapping[str, Mapping[str, str]]) -> set[str]:
        """Return the devices that install or try the release: on trial, none is connected."""
        return {
            device
            for device in self.stages.asked
            if (state := states.get(device, {})).get("offer") == self.offer
            and state["phase"] not in ("idle", *SKIPPED)
        }

    @property
    def undecided(self) -> list[str]:
        """The devices that were asked and have not answered."""
        return [device for device in self.stages.asked if device not in self.stages.verdicts]

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``edgefed agent-update progress --json`` prints."""
        stages = self.stages
        counts = {verdict: stages.count(verdict) for verdict in ("taken", "refused", "skipped")}
        return {
            "release": self.release,
            "offer": self.offer,
            "status": stages.status,
            "stage": stages.stage + 1,
            "shares": list(stages.shares),
            "stop_at": stages.stop_at,
            "devices": len(stages.order),
            "asked": len(stages.asked),
            **counts,
            "undecided": len(self.undecided),
        }

    def stored(self) -> dict[str, Any]:
        """Return the fields for a file."""
        return asdict(self)


def read_staged(fields: Mapping[str, Any]) -> StagedUpdate:
    """Return a rollout from the fields that ``stored`` gave."""
    plan = dict(fields["stages"])
    stages = Stages(tuple(plan.pop("order")), tuple(plan.pop("shares")), **plan)
    return StagedUpdate(fields["offer"], fields["release"], fields["during_run"], stages)


def planned(
    seed: str,
    devices: Collection[str],
    online: Collection[str],
    first: Sequence[str],
    shares: Sequence[float],
    stop_at: float,
) -> Stages:
    """Return the plan of a rollout.

    Args:
        seed: decides the order of devices, of which connected ones come before others.
        devices: all that it asks.
        online: the connected devices.
        first: devices that are the first stage by themselves; empty for a stage by its share.
        shares: of the devices that each stage asks, with those before.
        stop_at: share of refusals above which it stops.
    """
    others = (device for device in drawn_order(seed, devices) if device not in first)
    order = (*first, *sorted(others, key=lambda device: device not in online))
    if first:
        share = len(first) / len(order)
        shares = (share, *(larger for larger in shares if larger > share))
    return Stages(order, tuple(shares), stop_at)

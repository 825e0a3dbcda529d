"""Requests of operators about releases of the agent: add, list, offer, and the state of devices."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from edgefed.config.recipes.rollout_section import DEFAULT_SHARES, Shares
from edgefed.coordinator.process.device_actions import MAX_DEVICES
from edgefed.coordinator.process.request_actions import Arguments, Nothing, RequestAction
from edgefed.coordinator.updates.agent_releases import AgentReleases


class _Add(Arguments):
    folder: str


class _Offer(Arguments):
    name: str
    """Of the release."""
    devices: Annotated[list[str], Field(min_length=1, max_length=MAX_DEVICES)]
    during_run: bool = False


class _RollOut(Arguments):
    name: str
    """Of the release."""
    devices: Annotated[tuple[str, ...], Field(max_length=MAX_DEVICES)] = ()
    """Empty for all."""
    first: Annotated[tuple[str, ...], Field(max_length=MAX_DEVICES)] = ()
    shares: Shares = DEFAULT_SHARES
    stop_at: Annotated[float, Field(ge=0, le=1)] = 0.1
    during_run: bool = False


def update_actions(releases: AgentReleases) -> Mapping[str, RequestAction]:
    """Return the actions about releases, by name."""

    def add(arguments: _Add) -> list[dict[str, Any]]:
        return releases.add(Path(arguments.folder))

    def offer(arguments: _Offer) -> dict[str, Any]:
        return releases.offer(arguments.name, arguments.devices, during_run=arguments.during_run)

    def roll_out(arguments: _RollOut) -> dict[str, Any]:
        given = arguments.model_dump(exclude={"name"})
        return releases.roll_out(arguments.name, given.pop("devices"), **given)

    return {
        "update.add": RequestAction(_Add, add, order=True),
        "update.list": RequestAction(Nothing, lambda arguments: releases.releases()),
        "update.offer": RequestAction(_Offer, offer, order=True),
        "update.rollout": RequestAction(_RollOut, roll_out, order=True),
        "update.progress": RequestAction(Nothing, lambda arguments: releases.progress()),
        "update.status": RequestAction(Nothing, lambda arguments: releases.status()),
    }

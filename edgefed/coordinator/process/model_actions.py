"""Requests of operators about rollouts of models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from edgefed.config.recipes.rollout_section import DEFAULT_SHARES, Shares
from edgefed.coordinator.process.request_actions import Arguments, Nothing, RequestAction
from edgefed.coordinator.rollouts.model_rollouts import ModelRollouts
from edgefed.coordinator.storage.run_store import Store


class _Rollout(Arguments):
    run: str
    best: bool = False
    shares: Shares = DEFAULT_SHARES
    stop_at: Annotated[float, Field(ge=0, le=1)] = 0.1


class _Status(Arguments):
    rollout: str = ""
    """Empty for the newest."""


def model_actions(rollouts: ModelRollouts, store: Store) -> Mapping[str, RequestAction]:
    """Return the actions about rollouts of models, by name."""

    def roll_out(arguments: _Rollout, by: str) -> dict[str, Any]:
        run = store.run(arguments.run).run
        begun = rollouts.start(
            run, best=arguments.best, shares=arguments.shares, stop_at=arguments.stop_at, by=by
        )
        return begun.to_json()

    def status(arguments: _Status) -> dict[str, Any]:
        return rollouts.find(arguments.rollout).to_json()

    def roll_back(arguments: Nothing) -> dict[str, Any]:
        del arguments
        return rollouts.roll_back().to_json()

    return {
        "model.rollout": RequestAction(_Rollout, roll_out, order=True, by_user=True),
        "model.status": RequestAction(_Status, status),
        "model.rollback": RequestAction(Nothing, roll_back, order=True),
    }

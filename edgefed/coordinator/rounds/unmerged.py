"""Exchanges that are not merged: their quorum was missed, or their answers have no valid merge."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from edgefed.algorithms.composed.merging_check import least_devices
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import Algorithm, State
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.rounds.reply_stats import ReplyStats
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.errors import UnmergeableError
from edgefed.terminal.units import counted

INSPECT = "see edgefed run show and edgefed device list; then edgefed run resume"
"""Advice for the operator when answers have no valid merge."""


@dataclass(frozen=True)
class MergeProblem:
    """The reason why an exchange is not merged.

    Attributes:
        reason: the reason in words, without a full stop.
        hint: advice for the operator.
        devices: those whose answers are the cause, where that is known.
    """

    reason: str
    hint: str
    devices: tuple[str, ...] = ()


def merged_or_problem(
    algorithm: Algorithm[Any], state: State, asked: Exchange, answers: Iterable[Answer]
) -> State | UnmergeableError:
    """Return the state after the answers, or why they have no valid merge."""
    try:
        return algorithm.merge(state, asked, answers)
    except UnmergeableError as error:
        return error


def problem_of(
    opened: OpenExchange, stats: ReplyStats, merged: State | UnmergeableError, recipe: Recipe
) -> MergeProblem | None:
    """Return why an exchange is not merged, or nothing."""
    # The quorum comes first: too few answers also explain why they had no valid merge
    if stats.accepted < opened.quorum:
        reason = _missed_quorum(opened, stats, least_devices(recipe).because)
        return MergeProblem(reason, stats.advice(recipe.training.learning_rate))
    if isinstance(merged, UnmergeableError):
        reason = f"the answers of round {opened.round} were not merged: {merged.message}"
        return MergeProblem(reason, INSPECT, merged.devices)
    return None


def _missed_quorum(opened: OpenExchange, stats: ReplyStats, because: str) -> str:
    """Return in words how far an exchange stayed below its quorum, and why."""
    asked, quorum = len(opened.tasks), f"the quorum is {opened.quorum}"
    if not asked:
        return f"no device was there for round {opened.round}, {quorum}"
    parts = [stats.shortfall(asked, opened.deadline)]
    if asked < opened.quorum:
        there = f"only {counted(asked, 'device')} could be asked in round {opened.round}, {quorum}"
        clause = because.rstrip(".")
        parts.append(clause[:1].lower() + clause[1:])
    else:
        there = f"only {stats.accepted} of {asked} devices answered round {opened.round}, {quorum}"
    return "; ".join(filter(None, (there, *parts)))

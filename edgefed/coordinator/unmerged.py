"""Exchanges that are not merged: their quorum was missed, or their answers have no valid merge."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from edgefed.algorithms.base import Algorithm, Answer, Exchange, State
from edgefed.coordinator.reply_stats import ReplyStats
from edgefed.coordinator.run_records import OpenExchange
from edgefed.errors import UnmergeableError

INSPECT = "see edgefed run show and edgefed device list; then edgefed run resume"
"""What an operator can do when answers have no valid merge."""


@dataclass(frozen=True)
class Problem:
    """Why an exchange is not merged.

    Attributes:
        told: in words, without a full stop.
        hint: what an operator can do.
        devices: whose answers are the cause, where that is known.
    """

    told: str
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
    opened: OpenExchange, stats: ReplyStats, merged: State | UnmergeableError, rate: float
) -> Problem | None:
    """Return why an exchange is not merged, or nothing; ``rate`` is the learning rate."""
    if stats.accepted < opened.quorum:
        return Problem(_missed_quorum(opened, stats), stats.advice(rate))
    if isinstance(merged, UnmergeableError):
        told = f"the answers of round {opened.round} were not merged: {merged.message}"
        return Problem(told, INSPECT, merged.devices)
    return None


def _missed_quorum(opened: OpenExchange, stats: ReplyStats) -> str:
    """Return in words how far an exchange stayed below its quorum, and why."""
    asked = len(opened.tasks)
    if not asked:
        return f"no device was there for round {opened.round}, the quorum is {opened.quorum}"
    return (
        f"only {stats.accepted} of {asked} devices answered round {opened.round}, the quorum is "
        f"{opened.quorum}; {stats.shortfall(asked, opened.deadline)}"
    )

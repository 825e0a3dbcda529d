"""The best round of a run by a measure, also where its early rounds are no longer kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from edgefed.events.base.snapshot import RoundView

Measure = Literal["accuracy", "loss"]
MEASURES: tuple[Measure, ...] = ("accuracy", "loss")

MAX_ROUNDS = 600
"""Rounds that a snapshot holds of a run."""


@dataclass(frozen=True)
class Best:
    """The best value of a measure, and the first round that reached it."""

    value: float
    round: int


def best_of(rounds: Sequence[RoundView], measure: Measure) -> Best | None:
    """Return the best value of some rounds and the first that reached it, None without any.

    Where tests on devices were judged, only rounds count that comparable devices tested.
    """
    judged = [row for row in rounds if (row.is_best if measure == "accuracy" else row.compared)]
    values = ((getattr(row, measure), row.round) for row in judged or rounds)
    known = [Best(value, at) for value, at in values if value is not None and math.isfinite(value)]
    sign = 1 if measure == "accuracy" else -1
    return max(known, key=lambda candidate: sign * candidate.value, default=None)


def latest_rounds(
    early: Sequence[RoundView], rounds: Sequence[RoundView]
) -> tuple[tuple[RoundView, ...], tuple[RoundView, ...]]:
    """Return the best ones of the rounds that are not kept, and the last ``MAX_ROUNDS``.

    Args:
        early: the best rounds before ``rounds``.
        rounds: oldest first.
    """
    kept = tuple(rounds[-MAX_ROUNDS:])
    dropped = (*early, *rounds[: len(rounds) - len(kept)])
    best = {best_round.round for measure in MEASURES if (best_round := best_of(dropped, measure))}
    return tuple(row for row in dropped if row.round in best), kept

"""Between which phases a run is paused: it pauses before it asks devices, never during a phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from edgefed.events.base.model import Phase
from edgefed.events.base.snapshot import RoundView, RunView

PHASES: tuple[Phase, ...] = tuple(phase for phase in get_args(Phase) if phase != "done")
"""The phases of a round, in their order."""


@dataclass(frozen=True)
class PausePlace:
    """The place where a run resumes.

    Attributes:
        done: number of finished phases of the round.
        words: the phases before and after the pause, such as ``between evaluate and select``.
    """

    done: int
    words: str


def pause_place(run: RunView, rounds: Sequence[RoundView]) -> PausePlace:
    """Return between which phases a paused run is.

    Args:
        run: the run.
        rounds: its rounds that are over.
    """
    if rounds and rounds[-1].round >= run.round:
        return PausePlace(len(PHASES), f"between evaluate and select of round {run.round + 1}")
    if run.phase == "merge":  # of one exchange, and the round has another one
        done = PHASES.index("merge") + 1
        return PausePlace(done, "between merge and select of the next exchange")
    if run.phase in ("broadcast", "collect"):  # too few answers came
        return PausePlace(0, f"between {run.phase} and select: devices are asked again")
    return PausePlace(0, "before select")

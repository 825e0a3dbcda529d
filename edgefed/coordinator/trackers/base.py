"""The interface of a tracker, which is notified of each finished round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from edgefed.config.recipe import Recipe
from edgefed.coordinator.run_records import RunRecord

Row = Mapping[str, Any]
"""A finished round, as the store keeps it: its number, scores, answers, seconds and bytes."""


@dataclass(frozen=True)
class TrackedRun:
    """A run as a tracker takes it up.

    Attributes:
        folder: the run's own folder.
        rounds: what is finished already, oldest first; of a run that goes on after a restart these
            may have been told before.
    """

    record: RunRecord
    recipe: Recipe
    folder: Path
    rounds: Sequence[Row]


class Tracker(Protocol):
    """Is told a run's rounds. Whatever it raises costs the run a warning and nothing else."""

    @property
    def name(self) -> str:
        """How warnings call it."""
        ...

    def begin(self, run: TrackedRun) -> None:
        """Take up a run, and bring what was told of it up to its finished rounds, each once."""
        ...

    def round(self, row: Row) -> None:
        """Take the next finished round."""
        ...

    def end(self, record: RunRecord) -> None:
        """Let go of the run: it has ended, or this process works on it no longer."""
        ...


def numbers(row: Row) -> dict[str, float]:
    """Return what of a round can be drawn: its numbers but for the round's own."""
    return {
        key: float(value)
        for key, value in row.items()
        if key != "round" and isinstance(value, (int, float)) and not isinstance(value, bool)
    }

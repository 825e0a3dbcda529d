"""The interface of a tracker, which is notified of each finished round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.storage.stored_runs import RunRecord

Row = Mapping[str, Any]
"""A finished round, as the store keeps it: its number, scores, answers, seconds and bytes."""


@dataclass(frozen=True)
class TrackedTrial:
    """The place of a run in a sweep.

    Attributes:
        sweep: name of the sweep.
        case: name of the case.
        seed: of the run.
        settings: the recipe keys that make the case, with their values.
        digest: of all inputs of the result.
    """

    sweep: str
    case: str
    seed: int
    settings: Mapping[str, Any]
    digest: str

    @property
    def title(self) -> str:
        """The case and the seed."""
        return f"{self.case} seed {self.seed}"


@dataclass(frozen=True)
class TrackedRun:
    """A run as a tracker takes it up.

    Attributes:
        folder: the run's own folder.
        rounds: the finished rounds, oldest first; after a restart the tracker may have received
            some of them before.
        trial: its place in a sweep; None for a run of its own.
    """

    record: RunRecord
    recipe: Recipe
    folder: Path
    rounds: Sequence[Row]
    trial: TrackedTrial | None = None

    @property
    def id(self) -> str:
        """A unique name, which a trial of a sweep keeps if it is run again."""
        return self.record.run if self.trial is None else self.trial.digest

    @property
    def title(self) -> str:
        """A name for people."""
        return self.record.run if self.trial is None else self.trial.title


class Tracker(Protocol):
    """Receives a run's rounds. An error that it raises causes only a warning."""

    @property
    def name(self) -> str:
        """Its name in warnings."""
        ...

    def begin(self, run: TrackedRun) -> None:
        """Begin a run, and record each of its finished rounds exactly once."""
        ...

    def round(self, row: Row) -> None:
        """Take the next finished round."""
        ...

    def end(self, record: RunRecord) -> None:
        """Release the run: it has ended, or this process no longer works on it."""
        ...


def numbers(row: Row) -> dict[str, float]:
    """Return the numbers of a round that can be drawn, without the round's own number."""
    return {
        key: float(value)
        for key, value in row.items()
        if key != "round" and isinstance(value, (int, float)) and not isinstance(value, bool)
    }

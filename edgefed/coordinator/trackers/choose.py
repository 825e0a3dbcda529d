"""Create the trackers that the settings name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from edgefed.config.fleet.tracker_names import TRACKER_PLUGINS
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.coordinator.trackers.base import Row, TrackedRun, Tracker
from edgefed.coordinator.trackers.mlflow import MLflow
from edgefed.coordinator.trackers.tensorboard import TensorBoard
from edgefed.coordinator.trackers.wandb import WeightsAndBiases
from edgefed.errors import UsageError
from edgefed.process.clock import Clock


def make_trackers(names: Iterable[str], state: Path, clock: Clock) -> tuple[Tracker, ...]:
    """Return the trackers that the settings name; each keeps its files in the state folder.

    Nothing is imported or opened before a run begins.
    """
    return tuple(_make(name, state, clock) for name in dict.fromkeys(names))


def _make(name: str, state: Path, clock: Clock) -> Tracker:
    match name:
        case "tensorboard":
            return TensorBoard(state / name)
        case "mlflow":
            return MLflow(state / name, clock)
        case "wandb":
            return WeightsAndBiases(state / name)
    return PluginTracker(name, state / "trackers" / name)


class PluginTracker:
    """The tracker of a package, made when its first run begins.

    Args:
        name: that the package offers it by.
        folder: for its files; it makes the folder itself.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder
        self._tracker: Tracker | None = None

    def begin(self, run: TrackedRun) -> None:
        """Begin a run.

        Raises:
            UsageError: no package offers the tracker, or it cannot be used.
        """
        if self._tracker is None:
            made = TRACKER_PLUGINS.find(self.name)
            if made is None:
                raise UsageError(f"There is no tracker '{self.name}'.", hint="edgefed plugin list")
            self._tracker = made(self._folder)
        self._tracker.begin(run)

    def round(self, row: Row) -> None:
        """Pass on a round."""
        if self._tracker is not None:
            self._tracker.round(row)

    def end(self, record: RunRecord) -> None:
        """Pass on the end."""
        if self._tracker is not None:
            self._tracker.end(record)

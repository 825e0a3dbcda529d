"""Create the trackers that the settings name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from edgefed.config.fleet.settings import TrackerName
from edgefed.coordinator.trackers.base import Tracker
from edgefed.coordinator.trackers.mlflow import MLflow
from edgefed.coordinator.trackers.tensorboard import TensorBoard
from edgefed.process.clock import Clock


def make_trackers(names: Iterable[TrackerName], state: Path, clock: Clock) -> tuple[Tracker, ...]:
    """Return the trackers that the settings name; each keeps its files in the state folder.

    Nothing is imported or opened before a run begins.
    """
    return tuple(_make(name, state / name, clock) for name in dict.fromkeys(names))


def _make(name: TrackerName, folder: Path, clock: Clock) -> Tracker:
    match name:
        case "tensorboard":
            return TensorBoard(folder)
        case "mlflow":
            return MLflow(folder, clock)

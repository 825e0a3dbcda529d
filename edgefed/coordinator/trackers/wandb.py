"""Rounds as metrics for Weights & Biases, in local files unless ``WANDB_MODE`` says otherwise."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.coordinator.trackers.base import Row, TrackedRun, numbers
from edgefed.coordinator.trackers.packages import wanted
from edgefed.files.writing import make_folder


class WeightsAndBiases:
    """Writes ``wandb/offline-run-…``, which ``wandb sync`` uploads.

    The runs of a sweep are a group. ``WANDB_MODE=online`` uploads at once, and ``WANDB_PROJECT``
    names the project, which is the recipe's name by default.

    Args:
        folder: of the files.
    """

    name = "wandb"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._run: Any = None

    def begin(self, run: TrackedRun) -> None:
        """Begin the run, or go on with the one of its id, and log its rounds.

        Raises:
            UsageError: the package is missing.
        """
        self._finish(0)
        package = wanted("wandb", self.name)
        make_folder(self._folder)
        self._run = package.init(
            project=os.environ.get("WANDB_PROJECT", run.recipe.name),
            group=None if run.trial is None else run.trial.sweep,
            name=run.title,
            id=run.id,
            resume="allow",
            dir=str(self._folder.parent),  # the package adds a folder named wandb
            config=run.recipe.model_dump(mode="json"),
            mode=None if "WANDB_MODE" in os.environ else "offline",
            settings=package.Settings(console="off", silent=True),  # stdout is data
        )
        for row in run.rounds:
            self.round(row)

    def round(self, row: Row) -> None:
        """Log a round; its number is the step. Steps before the last one are ignored."""
        self._run.log(numbers(row), step=row["round"])

    def end(self, record: RunRecord) -> None:
        """Close the run: as failed, unless it has finished."""
        self._finish(0 if record.status == "finished" else 1)

    def _finish(self, code: int) -> None:
        if self._run is not None:
            run, self._run = self._run, None
            run.finish(exit_code=code)

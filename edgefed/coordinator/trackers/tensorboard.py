"""Rounds as scalars for TensorBoard, one folder per run: ``tensorboard --logdir FOLDER``.

The runs of a sweep are in a folder of their own: ``SWEEP/CASE-seed-SEED-DIGEST``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from edgefed.config.loading.write import to_toml
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.coordinator.trackers.base import Row, TrackedRun, numbers
from edgefed.coordinator.trackers.packages import wanted
from edgefed.files.writing import make_folder


class TensorBoard:
    """Writes event files.

    Args:
        folder: the log folder of all runs.
    """

    name = "tensorboard"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: Any = None

    def begin(self, run: TrackedRun) -> None:
        """Open a file for a run. Its rounds replace those in older files.

        Raises:
            UsageError: the package is missing.
        """
        self._close()
        make = wanted("torch.utils.tensorboard", self.name).SummaryWriter
        place = make_folder(self._folder) / _place(run)
        self._writer = make(str(place), purge_step=0 if place.exists() else None)
        self._writer.add_text("recipe", f"```toml\n{to_toml(run.recipe, comments=False)}```")
        for row in run.rounds:
            self._add(row)
        self._writer.flush()

    def round(self, row: Row) -> None:
        """Write a round."""
        self._add(row)
        self._writer.flush()

    def end(self, record: RunRecord) -> None:
        """Close the file."""
        self._close()

    def _add(self, row: Row) -> None:
        for name, value in numbers(row).items():
            self._writer.add_scalar(name, value, row["round"])

    def _close(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()


def _place(run: TrackedRun) -> Path:
    """Return the run's folder, from that of all runs."""
    if run.trial is None:
        return Path(run.record.run)
    name = re.sub(r"[^\w.=-]+", "-", run.trial.title.replace(" seed ", "-seed-"))[:100]
    return Path(run.trial.sweep) / f"{name}-{run.trial.digest[:8]}"

"""Rounds as metrics for MLflow, in a local database file: no server, no network."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from edgefed.config.values.layers import leaves
from edgefed.config.values.problems import dotted
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.coordinator.trackers.base import Row, TrackedRun, numbers
from edgefed.coordinator.trackers.packages import wanted
from edgefed.files.writing import make_folder
from edgefed.process.clock import Clock
from edgefed.process.lock import waiting_lock

RUN_TAG = "edgefed.run"
MAX_VALUE = 500
"""Longest text of a parameter that every version of MLflow takes."""

_ENDS = {"finished": "FINISHED", "failed": "FAILED", "aborted": "KILLED"}


class MLflow:
    """Writes ``mlflow.db``; show it with ``mlflow ui --backend-store-uri sqlite:///…/mlflow.db``.

    Args:
        folder: where the database and the artifacts are kept.
        clock: for the times of metrics.
    """

    name = "mlflow"

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._client: Any = None
        self._run = ""

    def begin(self, run: TrackedRun) -> None:
        """Find the run in the database, or add it, and add missing rounds.

        Raises:
            UsageError: the package is missing.
        """
        with waiting_lock(make_folder(self._folder)):  # of trials that make the database at once
            self._connect()
            experiment = self._experiment(run.recipe.name)
            runs = self._client.search_runs(
                [experiment], filter_string=f"tags.`{RUN_TAG}` = '{run.id}'"
            )
            self._run = runs[0].info.run_id if runs else self._create(experiment, run)
        self._client.update_run(self._run, status="RUNNING")
        steps = {metric.step for metric in self._client.get_metric_history(self._run, "replies")}
        self._add(row for row in run.rounds if row["round"] not in steps)

    def round(self, row: Row) -> None:
        """Write a round."""
        self._add([row])

    def end(self, record: RunRecord) -> None:
        """Write how the run ended, if it has."""
        if record.status in _ENDS:
            self._client.set_terminated(self._run, _ENDS[record.status])

    def _connect(self) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        address = f"sqlite:///{self._folder.absolute() / 'mlflow.db'}"
        self._client = wanted("mlflow", self.name).MlflowClient(tracking_uri=address)

    def _experiment(self, name: str) -> str:
        experiment = self._client.get_experiment_by_name(name)
        if experiment is not None:
            return str(experiment.experiment_id)
        place = (self._folder.absolute() / "artifacts").as_uri()
        return str(self._client.create_experiment(name, artifact_location=place))

    def _create(self, experiment: str, run: TrackedRun) -> str:
        tags = {RUN_TAG: run.id}
        if run.trial is not None:
            named = {"sweep": run.trial.sweep, "case": run.trial.case, "seed": str(run.trial.seed)}
            tags.update({f"edgefed.{key}": text for key, text in named.items()})
        made = self._client.create_run(experiment, run_name=run.title, tags=tags)
        for path, value in leaves(run.recipe.model_dump(mode="json")):
            self._client.log_param(made.info.run_id, dotted(path), str(value)[:MAX_VALUE])
        return str(made.info.run_id)

    def _add(self, rows: Iterable[Row]) -> None:
        metric = wanted("mlflow.entities", self.name).Metric
        now = int(self._clock.now().timestamp() * 1000)
        for row in rows:
            values = numbers(row).items()
            metrics = [metric(name, value, now, row["round"]) for name, value in values]
            self._client.log_batch(self._run, metrics=metrics)

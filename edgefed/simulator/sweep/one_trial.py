"""Run one trial of a sweep in this process."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from edgefed.coordinator.rounds.reply_stats import BECAUSE
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.coordinator.trackers.base import Row, TrackedRun, TrackedTrial, Tracker
from edgefed.errors import EdgeFedError
from edgefed.events.base.model import Event
from edgefed.process.clock import Clock
from edgefed.simulator.executors import Maker
from edgefed.simulator.run import Simulation
from edgefed.simulator.sweep.plan import Trial
from edgefed.simulator.sweep.planted_clusters import PlantedClusters
from edgefed.simulator.sweep.results import Results, TrialResult

log = logging.getLogger(__name__)


class Report(Protocol):
    """Takes a step of the trial: its state, and attributes of ``TrialStep``."""

    def __call__(self, state: str, **more: object) -> None:
        """Take it."""
        ...


@dataclass(frozen=True)
class TrialFailure:
    """The failure of a trial.

    Attributes:
        reason: the cause first, then a quorum that was missed for it.
        trace: traceback, of the code of a plug-in or of a user where that failed; may be empty.
    """

    reason: str
    trace: str = ""


@dataclass(frozen=True)
class TrialSetup:
    """The common surroundings of the trials of a sweep.

    Attributes:
        results: of the sweep.
        clock: for seconds and event times.
        data_folder: keeps downloaded data sets.
        executors: makes the executor; None for the default of this machine.
        memory: most bytes that training a model may take; 0 for half of the free memory.
        trackers: notified of every round.
    """

    results: Results
    clock: Clock
    data_folder: Path | None = None
    executors: Maker | None = None
    memory: int = 0
    trackers: Sequence[Tracker] = ()


def run_trial(trial: Trial, setup: TrialSetup, report: Report) -> TrialResult | TrialFailure:
    """Run a trial and keep its result, or return its failure.

    Args:
        trial: to run.
        setup: of the sweep.
        report: called with ``round`` after each round, and with ``warned`` for a tracker's failure.

    Raises:
        EdgeFedError: the next run would fare no better.
    """
    try:
        return _run(trial, setup, report)
    except Exception as error:
        return _failure(error, "".join(traceback.format_exception(error)))


def _run(trial: Trial, setup: TrialSetup, report: Report) -> TrialResult | TrialFailure:
    results = setup.results
    sweep = results.folder.name.removesuffix("-results")
    place = TrackedTrial(sweep, trial.case.name, trial.seed, trial.case.settings, trial.digest)
    simulation = Simulation(
        trial.recipe,
        results.work / trial.digest,
        setup.clock,
        setup.data_folder,
        tuple(_TrialTracker(tracker, place) for tracker in setup.trackers),
        executors=setup.executors,
        memory=setup.memory,
        noise_folder=results.noise,
    )
    rows: list[dict[str, object]] = []
    clusters = PlantedClusters(trial.recipe)

    def hear(event: Event, _: int) -> None:
        clusters.hear(event)
        fields = event.fields
        if event.kind == "scored":
            row = {key: value for key, value in fields.items() if key != "run"}
            rows.append({**row, **clusters.scores()})
            report("round", round=row["round"], accuracy=row.get("accuracy"))
        elif event.kind == "note" and str(fields["text"]).startswith("tracker "):
            report("warned", reason=fields["text"])

    simulation.journal.listen(hear)
    ended = simulation.run()
    record = ended.record
    if record.status != "finished":
        code = record.error or "run.failed"
        return _failure(EdgeFedError(record.reason or record.status, code=code), ended.trace)
    if rows and "accuracy" in ended.final:
        rows[-1]["final_accuracy"] = ended.final["accuracy"]
    return results.keep(trial, record, ended.folder, rows)


def _failure(error: Exception, trace: str) -> TrialFailure:
    """Return why a run failed.

    Raises:
        EdgeFedError: the next run would fare no better.
    """
    if not isinstance(error, EdgeFedError):
        log.debug("a run of the sweep failed", exc_info=error)
        return TrialFailure(" ".join(f"{type(error).__name__}: {error}".split()), trace)
    # A full disk or a lost Ray would fail every further run too
    if error.code.startswith(("storage.", "ray.")):
        raise error
    return TrialFailure(_cause_first(error.message), trace)


def _cause_first(reason: str) -> str:
    """Return a reason with the failure of a device before the quorum that was missed for it."""
    before, because, cause = reason.partition(BECAUSE)
    if not because:
        return reason
    cause = cause.partition("  [")[0].rstrip(".")  # without the code and advice of a device
    return f"{cause}. {before}."


class _TrialTracker:
    """Begins a tracker's run with its place in the sweep."""

    def __init__(self, tracker: Tracker, trial: TrackedTrial) -> None:
        self.name = tracker.name
        self._tracker = tracker
        self._trial = trial

    def begin(self, run: TrackedRun) -> None:
        self._tracker.begin(replace(run, trial=self._trial))

    def round(self, row: Row) -> None:
        self._tracker.round(row)

    def end(self, record: RunRecord) -> None:
        self._tracker.end(record)

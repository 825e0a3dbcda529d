"""Run the trials of a sweep that have no result yet, one after another."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from edgefed.errors import EdgeFedError
from edgefed.events.base.model import Event
from edgefed.files.writing import make_folder
from edgefed.process.clock import Clock
from edgefed.process.lock import FolderLock
from edgefed.simulator.executors import Maker
from edgefed.simulator.run import Simulation
from edgefed.simulator.sweep.plan import Plan, Trial
from edgefed.simulator.sweep.planted_clusters import PlantedClusters
from edgefed.simulator.sweep.results import Results, TrialResult

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrialStep:
    """The progress of a sweep, for a progress line.

    Attributes:
        number, total: of the run, counted from 1, and how many there are.
        round: the last finished round of the run at work; 0 at its beginning.
        accuracy: after that round, or of the whole run.
        state: ``begun``, ``round``, ``done``, ``known`` (it was done before), ``failed``.
        reason: of the failure.
    """

    trial: Trial
    number: int
    total: int
    state: str
    round: int = 0
    accuracy: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class TrialOutcome:
    """The outcome of a sweep.

    Attributes:
        results: by digest.
        failures: reasons by digest; these are run again by the next call.
    """

    results: Mapping[str, TrialResult]
    failures: Mapping[str, str]


def run_trials(
    plan: Plan,
    folder: Path,
    clock: Clock,
    data_folder: Path | None = None,
    tell: Callable[[TrialStep], None] = lambda step: None,
    executors: Maker | None = None,
    memory: int = 0,
    *,
    recompute: bool = False,
    after_seed: Callable[[TrialOutcome], object] = lambda outcome: None,
) -> TrialOutcome:
    """Run a sweep to its end; after a kill or Ctrl-C at any moment, the next call resumes.

    Args:
        plan: the runs.
        folder: for results; one process at a time.
        clock: for seconds and event times.
        data_folder: keeps downloaded data sets.
        tell: called with each step.
        executors: makes the executor; None for the default of this machine.
        memory: most bytes that training a model may take; 0 for half of the free memory.
        recompute: run those again that another version of EdgeFed or torch ran.
        after_seed: called with the outcome so far when all cases have run with a seed, but for the
            last seed; not before the first run without a known result.

    Raises:
        NotAllowedError: another sweep uses the folder.
        StorageError: the disk does not take the results.
        EdgeFedError: the Ray cluster cannot be used.
    """
    lock = FolderLock(make_folder(folder, private=False), "a sweep", "--out")
    try:
        results = Results(folder)
        sweep = _Sweep(plan, results, clock, data_folder, tell, executors, memory, recompute)
        return sweep.run(len(plan.cases), after_seed)
    finally:
        lock.release()


class _Sweep:
    def __init__(
        self,
        plan: Plan,
        results: Results,
        clock: Clock,
        data_folder: Path | None,
        tell: Callable[[TrialStep], None],
        executors: Maker | None,
        memory: int,
        recompute: bool,
    ) -> None:
        self._trials = list(plan.trials())
        self._results = results
        self._clock = clock
        self._data = data_folder
        self._tell = tell
        self._executors = executors
        self._memory = memory
        self._recompute = recompute

    def run(self, cases: int, after_seed: Callable[[TrialOutcome], object]) -> TrialOutcome:
        done: dict[str, TrialResult] = {}
        failed: dict[str, str] = {}
        new = False
        for number, trial in enumerate(self._trials, 1):
            if new and (number - 1) % cases == 0:
                after_seed(TrialOutcome(dict(done), dict(failed)))
            result = done.get(trial.digest) or self._known(trial)
            if result is not None:
                done[trial.digest] = result
                self._say(trial, number, "known", round=result.rounds, accuracy=result.accuracy)
                continue
            new = True
            try:
                done[trial.digest] = self._work(trial, number)
            except Exception as error:
                failed[trial.digest] = reason = _reason(error)
                self._say(trial, number, "failed", reason=reason)
        self._results.clear()
        return TrialOutcome(done, failed)

    def _known(self, trial: Trial) -> TrialResult | None:
        """Return the result of an earlier sweep, if it counts."""
        result = self._results.find(trial)
        if result is None or not self._recompute or result.is_of_this_release:
            return result
        return None

    def _work(self, trial: Trial, number: int) -> TrialResult:
        self._results.clear()
        self._say(trial, number, "begun")
        simulation = Simulation(
            trial.recipe,
            self._results.work,
            self._clock,
            self._data,
            executors=self._executors,
            memory=self._memory,
            noise_folder=self._results.noise,
        )
        rows: list[dict[str, object]] = []
        clusters = PlantedClusters(trial.recipe)

        def hear(event: Event, _: int) -> None:
            clusters.hear(event)
            if event.kind == "scored":
                fields = {key: value for key, value in event.fields.items() if key != "run"}
                rows.append({**fields, **clusters.scores()})
                accuracy = fields.get("accuracy")
                self._say(trial, number, "round", round=fields["round"], accuracy=accuracy)

        simulation.journal.listen(hear)
        ended = simulation.run()
        record = ended.record
        if record.status != "finished":
            raise EdgeFedError(record.reason or record.status, code=record.error or "run.failed")
        if rows and "accuracy" in ended.final:
            rows[-1]["final_accuracy"] = ended.final["accuracy"]
        result = self._results.keep(trial, record, ended.folder, rows)
        self._say(trial, number, "done", round=result.rounds, accuracy=result.accuracy)
        return result

    def _say(self, trial: Trial, number: int, state: str, **more: object) -> None:
        self._tell(TrialStep(trial, number, len(self._trials), state, **more))  # type: ignore[arg-type]


def _reason(error: Exception) -> str:
    """Return why a run failed.

    Raises:
        EdgeFedError: the next run would fare no better.
    """
    if not isinstance(error, EdgeFedError):
        log.debug("a run of the sweep failed", exc_info=error)
        return " ".join(f"{type(error).__name__}: {error}".split())
    if error.code.startswith(("storage.", "ray.")):
        raise error
    return error.message

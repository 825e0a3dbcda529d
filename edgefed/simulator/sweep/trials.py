"""Run the trials of a sweep that have no result yet, one after another or several at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from edgefed.coordinator.trackers.base import Tracker
from edgefed.errors import UsageError
from edgefed.files.writing import make_folder
from edgefed.process.clock import Clock
from edgefed.process.lock import FolderLock
from edgefed.simulator.executors import Maker
from edgefed.simulator.forked_autograd import forks_can_train
from edgefed.simulator.process_pool import core_count
from edgefed.simulator.run import local_executor
from edgefed.simulator.sweep.one_trial import TrialFailure, TrialSetup, run_trial
from edgefed.simulator.sweep.plan import Plan, Trial
from edgefed.simulator.sweep.results import Results, TrialResult
from edgefed.simulator.sweep.trial_process import TrialProcess, ready


@dataclass(frozen=True)
class TrialStep:
    """The progress of a sweep, for a progress line.

    Attributes:
        number, total: of the run, counted from 1, and how many there are.
        round: the last finished round of the run at work; 0 at its beginning.
        accuracy: after that round, or of the whole run.
        state: ``begun``, ``round``, ``done``, ``known`` (it was done before), ``failed``;
            ``warned`` for the failure of a tracker.
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
    jobs: int = 1,
    trackers: Sequence[Tracker] = (),
    after_seed: Callable[[TrialOutcome], object] = lambda outcome: None,
    owner: str = "a sweep",
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
        jobs: the number of runs at once. Of several, each has a process of its own and its share of
            this machine's cores; results do not depend on it.
        trackers: notified of every round. With several jobs, each run has a copy of them, in its
            process.
        after_seed: called with the outcome so far when all cases have run with a seed, but for the
            last seed; not before the first run without a known result.
        owner: name of the program, for the error of another one that wants the folder.

    Raises:
        UsageError: several jobs that cannot be forked.
        NotAllowedError: another process uses the folder.
        StorageError: the disk does not take the results.
        EdgeFedError: the Ray cluster cannot be used.
    """
    trials = list(plan.trials())
    jobs = max(1, min(jobs, len(trials)))
    if jobs > 1:
        _check_forks()
        # Otherwise each of the runs would take all cores
        executors = executors or partial(local_executor, cores=max(1, core_count() // jobs))
    lock = FolderLock(make_folder(folder, private=False), owner, "--out, or out= in Python")
    try:
        setup = TrialSetup(Results(folder), clock, data_folder, executors, memory, trackers)
        return _Sweep(trials, setup, tell, recompute).run(jobs, len(plan.cases), after_seed)
    finally:
        lock.release()


def _check_forks() -> None:
    """Check that a run can train in a process of its own.

    Raises:
        UsageError: ``sweep.jobs``: it cannot.
    """
    if not forks_can_train():
        raise UsageError(
            "Several runs at once need processes, which cannot train: torch has started autograd's"
            " threads, or CUDA, in this process.",
            code="sweep.jobs",
            hint="run the sweep before anything is trained here, or with one job",
        )


class _Sweep:
    def __init__(
        self,
        trials: Sequence[Trial],
        setup: TrialSetup,
        tell: Callable[[TrialStep], None],
        recompute: bool,
    ) -> None:
        self._trials = trials
        self._setup = setup
        self._tell = tell
        self._recompute = recompute
        self._done: dict[str, TrialResult] = {}
        self._failed: dict[str, str] = {}
        self._at_work: dict[str, TrialProcess] = {}
        self._worked = False

    def run(
        self, jobs: int, cases: int, after_seed: Callable[[TrialOutcome], object]
    ) -> TrialOutcome:
        self._setup.results.clear()
        seeds = [
            self._trials[start : start + cases] for start in range(0, len(self._trials), cases)
        ]
        unfinished = deque(seeds[:-1])
        try:
            for number, trial in enumerate(self._trials, 1):
                while unfinished and self._has_ended(unfinished[0]):
                    unfinished.popleft()
                    if self._worked:
                        after_seed(TrialOutcome(dict(self._done), dict(self._failed)))
                # Cases may have equal trials: the later one waits for the result of the first
                while len(self._at_work) >= jobs or trial.digest in self._at_work:
                    self._listen()
                self._begin(number, trial, alone=jobs < 2)
            while self._at_work:
                self._listen()
        finally:
            for process in self._at_work.values():
                process.end()
        self._setup.results.clear()
        return TrialOutcome(self._done, self._failed)

    def _has_ended(self, trials: Sequence[Trial]) -> bool:
        return all(trial.digest in self._done or trial.digest in self._failed for trial in trials)

    def _begin(self, number: int, trial: Trial, *, alone: bool) -> None:
        """Begin a trial that has no result; if it runs alone, end it too."""
        result = self._done.get(trial.digest) or self._known(trial)
        if result is not None:
            self._end(number, trial, "known", result)
            return
        self._worked = True
        self._say(number, trial, "begun")
        if not alone:
            others = self._at_work.values()
            self._at_work[trial.digest] = TrialProcess(number, trial, self._setup, others)
            return
        ended = run_trial(trial, self._setup, partial(self._say, number, trial))
        if isinstance(ended, TrialFailure):
            self._fail(number, trial, ended)
        else:
            self._end(number, trial, "done", ended)

    def _listen(self) -> None:
        """Wait for reports of the trials at work, and pass them on."""
        for process in ready(list(self._at_work.values())):
            number, trial = process.number, process.trial
            report = process.received()
            if report is not None:
                self._say(number, trial, report[0], **report[1])
                continue
            del self._at_work[trial.digest]
            # The pipe carries states only; the result is on disk
            result = self._known(trial)
            if result is None:
                unread = TrialFailure("its result cannot be read")
                self._fail(number, trial, process.failure or unread)
            else:
                self._end(number, trial, "done", result)

    def _known(self, trial: Trial) -> TrialResult | None:
        """Return the result on disk, if it counts."""
        result = self._setup.results.find(trial)
        if result is None or not self._recompute or result.is_of_this_release:
            return result
        return None

    def _end(self, number: int, trial: Trial, state: str, result: TrialResult) -> None:
        self._done[trial.digest] = result
        self._setup.results.clear(trial.digest)
        self._say(number, trial, state, round=result.rounds, accuracy=result.accuracy)

    def _fail(self, number: int, trial: Trial, failure: TrialFailure) -> None:
        self._failed[trial.digest] = failure.reason
        self._setup.results.clear(trial.digest)
        self._setup.results.keep_failure(trial.digest, failure.reason, failure.trace)
        self._say(number, trial, "failed", reason=failure.reason)

    def _say(self, number: int, trial: Trial, state: str, **more: Any) -> None:
        self._tell(TrialStep(trial, number, len(self._trials), state, **more))

"""Common code of commands that run many trials: checks, progress, failures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from edgefed.cli.common.context import Globals
from edgefed.terminal.console import show_progress, talk
from edgefed.terminal.units import counted

if TYPE_CHECKING:
    from edgefed.simulator.executors import Maker
    from edgefed.simulator.sweep.plan import Plan
    from edgefed.simulator.sweep.trials import TrialOutcome, TrialStep


def parse_seeds(text: str) -> tuple[int, ...]:
    """Return the seeds that ``--seeds`` names; none of an empty text.

    Raises:
        UsageError: they are not whole numbers from 0, or one is there twice.
    """
    from edgefed.errors import UsageError

    words = [word.strip() for word in text.split(",")] if text else []
    if not all(word.isascii() and word.isdigit() and int(word) < 2**63 for word in words):
        raise UsageError(f"--seeds {text}: write whole numbers from 0, such as --seeds 1,2,3.")
    seeds = tuple(map(int, words))
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"--seeds {text}: write each seed once.")
    return seeds


def run_plan(
    options: Globals,
    plan: Plan,
    folder: Path,
    executors: Maker | None = None,
    *,
    recompute: bool = False,
    jobs: int = 1,
    after_seed: Callable[[TrialOutcome], object] = lambda outcome: None,
    owner: str = "a sweep",
) -> TrialOutcome:
    """Run the trials of a plan that have no result in the folder yet; report on stderr.

    Results of other versions of EdgeFed or torch cause one warning.

    Args:
        options: the global ones.
        plan: of the trials.
        folder: for results.
        executors: makes the executor; None for the default of this machine.
        recompute: run those again that have a result of another version.
        jobs: the number of runs at once.
        after_seed: see ``run_trials``.
        owner: see ``run_trials``.

    Raises:
        InterruptedRunError: Ctrl-C; finished trials are kept.
        NotAllowedError: another process uses the folder.
        StorageError: the disk does not take the results.
    """
    from edgefed.coordinator.trackers.choose import make_trackers
    from edgefed.errors import InterruptedRunError
    from edgefed.process.clock import SystemClock
    from edgefed.simulator.sweep.results import other_releases
    from edgefed.simulator.sweep.trials import run_trials

    log_when_verbose(options)
    progress = TrialProgress(quiet=options.quiet)
    settings = options.settings().value
    known, clock, memory = settings.state / "data", SystemClock(), settings.memory
    try:
        outcome = run_trials(
            plan,
            folder,
            clock,
            known,
            progress.take,
            executors,
            memory,
            recompute=recompute,
            jobs=jobs,
            trackers=make_trackers(settings.trackers, settings.state, clock),
            after_seed=after_seed,
            owner=owner,
        )
    except KeyboardInterrupt:
        raise InterruptedRunError(
            f"Interrupted; {progress.done} of {len(plan.cases) * len(plan.seeds)} runs are done.",
            hint="the same command resumes",
        ) from None
    if warning := other_releases(outcome.results.values()):
        talk(f"! {warning}")
    return outcome


def log_when_verbose(options: Globals) -> None:
    """Let ``--verbose`` show where the code of plug-ins failed."""
    from edgefed.terminal.logs import start_log

    if options.verbose:
        start_log(verbose=True)


def raise_failures(plan: Plan, outcome: TrialOutcome, folder: Path) -> None:
    """End a command of which runs have failed; ``folder`` has their files.

    Raises:
        PartlyDoneError: some have, or ``sweep.failed``: all have; it lists them with their files.
    """
    from edgefed.errors import PartlyDoneError
    from edgefed.simulator.sweep.results import error_file

    if not outcome.failures:
        return
    failed = [trial for trial in plan.trials() if trial.digest in outcome.failures]
    lines = [
        f"{trial.case.name}, seed {trial.seed}: {outcome.failures[trial.digest]}"
        f" ({folder / error_file(trial.digest)})"
        for trial in failed
    ]
    total = len(plan.cases) * len(plan.seeds)
    again = "the same command runs them again"
    if len(failed) == total:
        first = f"All {counted(total, 'run')} failed: {outcome.failures[failed[0].digest]}"
        raise PartlyDoneError("\n".join([first, *lines]), code="sweep.failed", hint=again)
    first = f"{len(failed)} of {counted(total, 'run')} failed:"
    raise PartlyDoneError("\n".join([first, *lines]), hint=again)


class TrialProgress:
    """Reports trials on stderr: a line a run, and on a terminal a bar of all of them."""

    def __init__(self, *, quiet: bool) -> None:
        self.done = 0
        self._ended = 0
        self._quiet = quiet
        self._at_work: dict[int, TrialStep] = {}
        self._warnings: set[str] = set()

    def take(self, step: TrialStep) -> None:
        """Report a step."""
        self.done += step.state in ("done", "known")
        if self._quiet:
            return
        if step.state == "warned":
            if step.reason not in self._warnings:
                talk(f"! {step.reason}")
            self._warnings.add(step.reason)
            return
        if step.state in ("begun", "round"):
            self._at_work[step.number] = step
        else:
            self._ended += 1
            self._at_work.pop(step.number, None)
            ends = {"known": "  done before", "failed": f"  failed: {step.reason}"}
            talk(_line(step) + ends.get(step.state, ""))
        if steps := list(self._at_work.values()):
            done = self._ended + math.fsum(map(_share, steps))
            note = _note(steps[0]) if len(steps) == 1 else _notes(steps)
            show_progress("runs", done, step.total, note)


def _share(step: TrialStep) -> float:
    """Return how much of its run is done; the last round's end is the run's."""
    return step.round / (step.trial.recipe.rounds.count + 1)


def _note(step: TrialStep) -> str:
    rounds = step.trial.recipe.rounds.count
    accuracy = "" if step.accuracy is None else f"  accuracy {step.accuracy:.4f}"
    case = f"{step.trial.case.name}  seed {step.trial.seed}"
    return f"{case}  round {step.round}/{rounds}{accuracy}"


def _notes(steps: Iterable[TrialStep]) -> str:
    """Return where several runs at work are."""
    rounds = ((step, f"{step.round}/{step.trial.recipe.rounds.count}") for step in steps)
    return " · ".join(f"{step.trial.case.name} seed {step.trial.seed} {at}" for step, at in rounds)


def _line(step: TrialStep) -> str:
    score = "" if step.accuracy is None else f"  accuracy {step.accuracy:.4f}"
    width = len(str(step.total))
    return (
        f"[{step.number:{width}d}/{step.total}] {step.trial.case.name}"
        f"  seed {step.trial.seed}{score}"
    )

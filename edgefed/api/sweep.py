"""Run a sweep from Python; ``edgefed sim sweep`` runs the same trials."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from edgefed.api.given_code import checked_trackers, listed
from edgefed.api.progress import run_bar
from edgefed.api.recipe_source import checked, plain
from edgefed.api.simulate import borrowed_process, data_folder_of
from edgefed.charts.paper_figure import Format, formats_of
from edgefed.config.fleet.settings_files import Surroundings
from edgefed.config.values.toml import Document
from edgefed.coordinator.trackers.base import Tracker
from edgefed.errors import UsageError
from edgefed.files.user_code import classes_allowed
from edgefed.process.clock import SystemClock
from edgefed.simulator.backend import place
from edgefed.simulator.sweep.file import read_sweep
from edgefed.simulator.sweep.outputs import summary
from edgefed.simulator.sweep.plan import Plan, make_plan
from edgefed.simulator.sweep.results import other_releases
from edgefed.simulator.sweep.seed_outputs import SeedOutputs
from edgefed.simulator.sweep.table import CaseRow, Table
from edgefed.simulator.sweep.table_text import text_rows
from edgefed.simulator.sweep.trials import TrialStep, run_trials

log = logging.getLogger("edgefed")

SweepSource = Mapping[str, Any] | str | os.PathLike[str]
"""The keys of a sweep file as a mapping, or the path of the file."""


@dataclass(frozen=True)
class SweepFailure:
    """A failed run of a sweep.

    Attributes:
        case: name of its case.
        seed: of the run.
        reason: the cause, then a quorum that was missed for it.
        file: has the reason and the traceback; the next success of the run removes it.
    """

    case: str
    seed: int
    reason: str
    file: Path


@dataclass(frozen=True)
class SweepResult:
    """The result of a sweep.

    Attributes:
        rows: the cases in their order, with the spread of each metric over the seeds.
        failures: runs that failed; the next call with the same folder runs them again.
        folder: of all files.
        summary: see ``to_json``.
        text: the table as ``edgefed sim sweep`` prints it; ``print`` shows it too.
    """

    rows: tuple[CaseRow, ...]
    failures: tuple[SweepFailure, ...]
    folder: Path
    summary: Mapping[str, Any]
    text: str

    def __repr__(self) -> str:
        """Return the table, the number of failed runs and the folder."""
        failed = f"failed runs: {len(self.failures)}; " if self.failures else ""
        return f"{self.text}\n{failed}folder: {self.folder}"

    def to_json(self) -> dict[str, Any]:
        """Return the output of ``edgefed sim sweep --json``."""
        return dict(self.summary)

    def __getitem__(self, case: str) -> CaseRow:
        """Return the row of a case by its name.

        Raises:
            KeyError: there is none.
        """
        rows = {row.case: row for row in self.rows}
        return rows[case]


def sweep(
    sweep: SweepSource,
    *,
    out: str | os.PathLike[str] | None = None,
    seeds: Sequence[int] = (),
    recompute: bool = False,
    jobs: int = 1,
    figures: Sequence[Format] = (),
    trackers: Tracker | Sequence[Tracker] = (),
    on: Literal["local", "ray"] = "local",
    address: str = "",
    data_folder: str | os.PathLike[str] | None = None,
    memory: int = 0,
    user_models: bool = True,
    on_step: Callable[[TrialStep], None] | None = None,
    progress: bool | None = None,
) -> SweepResult:
    """Run a recipe under every setting of a sweep, each with several seeds, and return the table.

    Finished runs are kept in the folder. The same call resumes an interrupted sweep, and repeats
    runs that have changed, also if the code of a class or function that a recipe names has changed.
    Settings files and ``EDGEFED_`` variables have no effect.

    Args:
        sweep: the path of a sweep file, or a mapping with its keys: ``recipe``, ``seeds``, ``grid``
            or ``cases``, ``target``, ``report``, ``baseline``, ``choose``. Recipes may name code of
            a script or a notebook, such as ``__main__:MyAlgorithm``.
        out: folder of the results; None for ``SWEEP-results`` beside the sweep file. A mapping
            needs one.
        seeds: in place of the sweep's.
        recompute: whether to repeat runs that another version of EdgeFed or torch made.
        jobs: number of runs at once, from 1; several have a process each.
        figures: formats of the figures beside SVG; they need matplotlib.
        trackers: one or several, notified of the rounds of each run. With several jobs, each run
            has a copy.
        on: ``local``, or ``ray`` to train on a cluster.
        address: of the Ray cluster; empty for one on this machine.
        data_folder: for downloaded data sets; None for the state folder of ``edgefed``.
        memory: most bytes that training a model may take; 0 for half of the free memory.
        user_models: whether recipes may name users' own code.
        on_step: called with the beginning, the rounds and the end of each run; None to log the end
            of each run as ``edgefed``, failures as warnings.
        progress: whether to show the runs as a bar; see ``simulate``.

    Returns:
        The result. Failed runs are in its ``failures``.

    Raises:
        EdgeFedError: the sweep or one of its recipes cannot be used, or the folder cannot be
            written. ``source.unreadable``: the code of a notebook uses values that a result cannot
            be known by.
        KeyboardInterrupt: Ctrl-C; finished runs are kept.
    """
    _check_jobs(jobs)
    formats, trackers = _formats(figures), checked_trackers(trackers)
    with borrowed_process(), classes_allowed(user_models):
        folder, plan = _folder(sweep, out), _plan(sweep, seeds)
        outputs = SeedOutputs(plan, folder, formats, warnings.warn)
        with (
            place(on, address, [trial.recipe for trial in plan.trials()], jobs) as executors,
            run_bar(progress, on_step or _log_step) as take,
        ):
            outcome = run_trials(
                plan,
                folder,
                SystemClock(),
                data_folder_of(data_folder),
                take,
                executors,
                memory,
                recompute=recompute,
                jobs=jobs,
                trackers=trackers,
                after_seed=outputs.write,
            )
        if warning := other_releases(outcome.results.values()):
            log.warning("%s", warning)
        table = outputs.write(outcome)
    return _result(plan, table, folder)


def _check_jobs(jobs: object) -> None:
    """Check the number of runs at once.

    Raises:
        UsageError: it is none.
    """
    if not isinstance(jobs, int) or jobs < 1:
        raise UsageError("jobs is a number of runs, from 1.", hint="such as jobs=2")


def _formats(figures: Sequence[Format]) -> list[Format]:
    """Return the formats of the figures.

    Raises:
        UsageError: one cannot be drawn.
    """
    return formats_of(listed("figures", figures, 'figures=["pdf"]'), "figures")


def _folder(sweep: SweepSource, out: str | os.PathLike[str] | None) -> Path:
    """Return the folder of the results.

    Raises:
        UsageError: a sweep that is no file has none.
    """
    if out is None and isinstance(sweep, Mapping):
        raise UsageError("A sweep in a mapping needs a folder.", hint="pass out=FOLDER")
    file = Path("" if isinstance(sweep, Mapping) else sweep).expanduser()
    return (Path(out).expanduser() if out else file.with_name(f"{file.stem}-results")).absolute()


def _plan(sweep: SweepSource, seeds: Sequence[int]) -> Plan:
    """Return the checked runs.

    Raises:
        EdgeFedError: the sweep cannot be used.
    """
    seeds = listed("seeds", seeds, "seeds=[1, 2, 3]")
    if not all(isinstance(seed, int) and 0 <= seed < 2**63 for seed in seeds):
        raise UsageError("Seeds are whole numbers from 0.", hint="such as seeds=[1, 2, 3]")
    around = Surroundings({}, Surroundings.of_process().cwd, no_config=True)
    if isinstance(sweep, Mapping):
        written = read_sweep(Document("sweep", plain(sweep), {}), "sweep")
    else:
        file = Path(sweep).expanduser()
        written = read_sweep(around.cwd / file, str(file))
    return make_plan(written, around, checked, seeds=seeds)


def _result(plan: Plan, table: Table, folder: Path) -> SweepResult:
    """Return the result of a sweep whose files are written."""
    failures = tuple(
        SweepFailure(case, seed, reason, folder / file)
        for case, seed, reason, file in table.failures
    )
    return SweepResult(table.rows, failures, folder, summary(plan, table, folder), _text(table))


def _text(table: Table) -> str:
    """Return the table with columns as wide as their widest cells."""
    cells = text_rows(table)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)
    return "\n".join(lines)


def _log_step(step: TrialStep) -> None:
    if step.state not in ("begun", "round"):
        level = logging.WARNING if step.state in ("failed", "warned") else logging.INFO
        score = "" if step.accuracy is None else f" accuracy {step.accuracy:.4f}"
        ended = f": {step.reason}" if step.reason else score
        names = f"{step.trial.case.name}, seed {step.trial.seed}"
        log.log(level, "run %d of %d: %s: %s%s", step.number, step.total, names, step.state, ended)

"""``edgefed sim sweep``: one recipe under many settings and seeds, as one table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefed.cli.context import Globals, globals_of
from edgefed.cli.help import examples
from edgefed.cli.options import On, RayAddress, Sets
from edgefed.cli.trial_progress import parse_seeds, raise_failures, run_plan
from edgefed.console import columns, data, json_out, talk

if TYPE_CHECKING:
    from edgefed.simulator.sweep.plan import Plan
    from edgefed.simulator.sweep.trials import Outcome

EPILOG = examples(
    "edgefed sim sweep sweep.toml",
    "edgefed sim sweep sweep.toml --seeds 1,2,3,4,5 --out results",
    "edgefed sim sweep sweep.toml --set rounds.count=10 --json",
)


def sweep(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="Sweep file.", metavar="SWEEP.toml")],
    *,
    seeds: Annotated[
        str, typer.Option("--seeds", help="Seeds to use instead of the file's.", metavar="1,2,3")
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder for results; by default SWEEP-results beside the file.",
            metavar="FOLDER",
        ),
    ] = None,
    sets: Sets = None,
    on: On = "local",
    address: RayAddress = "",
) -> None:
    """Run a recipe under every setting of a sweep file, each with several seeds.

    The same command resumes an interrupted sweep: finished runs are kept, and changed ones are run
    again.
    """
    from edgefed.simulator.backend import place
    from edgefed.simulator.sweep.outputs import summary, write_outputs

    options = globals_of(context)
    plan = _plan(options, file, seeds, sets)
    folder = _folder(file, out)
    with place(on, address, [trial.recipe for trial in plan.trials()]) as executors:
        outcome = run_plan(options, plan, folder, executors)
    write_outputs(plan, outcome, folder)
    if options.json:
        json_out(summary(plan, outcome, folder))
    else:
        _show(options, plan, outcome, folder)
    raise_failures(plan, outcome)


def _folder(file: Path, out: Path | None) -> Path:
    file = file.expanduser()
    return (out.expanduser() if out else file.with_name(f"{file.stem}-results")).absolute()


def _plan(options: Globals, file: Path, seeds: str, sets: list[str] | None) -> Plan:
    from edgefed.api.recipe_source import checked
    from edgefed.config.load import parse_sets
    from edgefed.simulator.sweep.file import read_sweep
    from edgefed.simulator.sweep.plan import make_plan

    around = options.surroundings()
    written = read_sweep(around.cwd / file.expanduser(), str(file.expanduser()))
    wanted = parse_seeds(seeds)
    return make_plan(written, around, checked, sets=parse_sets(sets or ()), seeds=wanted)


def _show(options: Globals, plan: Plan, outcome: Outcome, folder: Path) -> None:
    from edgefed.simulator.sweep.table import case_rows, text_rows

    data(columns(text_rows(case_rows(plan, outcome), plan.target)))
    if not options.quiet:
        seeds = ", ".join(map(str, plan.seeds))
        talk(f"  mean ± standard deviation over seeds {seeds}; bytes up and down")
        talk(f"  {folder}: table.csv, runs.csv, table.json, accuracy.svg")

"""``edgefed reproduce``: run a published table again and compare the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefed.cli.common.context import Globals, globals_of
from edgefed.cli.common.help import examples
from edgefed.cli.common.options import Jobs, Json, On, RayAddress, Recompute
from edgefed.cli.laboratory.trial_progress import parse_seeds, raise_failures, run_plan
from edgefed.terminal.console import columns, data, json_out, reported, talk
from edgefed.terminal.units import counted

if TYPE_CHECKING:
    from edgefed.reproduce.plan import Study
    from edgefed.simulator.sweep.trials import TrialOutcome

EPILOG = examples(
    "edgefed reproduce",
    "edgefed reproduce fedmix-table1",
    "edgefed reproduce fedmix-table1 --scale small --data datasets --seeds 1,2,3,4,5",
    "edgefed reproduce fedmix-table1 --scale paper --recipes recipes",
)

TableName = Annotated[
    str, typer.Argument(help="Table; by default the tables are listed.", show_default=False)
]
ScaleName = Annotated[
    str,
    typer.Option(
        "--scale",
        help="smoke: seconds; small: minutes on two cores; paper: as published, for a GPU.",
        metavar="smoke|small|paper",
    ),
]
DataFolder = Annotated[
    Path | None,
    typer.Option("--data", help="Read data from this folder and download none.", metavar="FOLDER"),
]
Seeds = Annotated[
    str, typer.Option("--seeds", help="Seeds to use instead of the table's.", metavar="1,2,3")
]
RowLabels = Annotated[
    list[str] | None,
    typer.Option("--row", help="Run only this row; may be repeated.", metavar="LABEL"),
]
ColumnLabels = Annotated[
    list[str] | None,
    typer.Option("--column", help="Run only this column; may be repeated.", metavar="LABEL"),
]
ResultsFolder = Annotated[Path, typer.Option("--out", help="Folder for results.", metavar="FOLDER")]
RecipesFolder = Annotated[
    Path | None,
    typer.Option(
        "--recipes", help="Write the recipes into this folder and run nothing.", metavar="FOLDER"
    ),
]
Listed = Annotated[bool, typer.Option("--list", help="List the tables.")]


def reproduce(
    context: typer.Context,
    name: TableName = "",
    *,
    scale: ScaleName = "smoke",
    data_folder: DataFolder = None,
    seeds: Seeds = "",
    rows: RowLabels = None,
    column_names: ColumnLabels = None,
    out: ResultsFolder = Path("reproduced"),
    recipes: RecipesFolder = None,
    listed: Listed = False,
    recompute: Recompute = False,
    jobs: Jobs = 1,
    on: On = "local",
    address: RayAddress = "",
    as_json: Json = False,
) -> None:
    """Run a published table again and compare it with the published numbers.

    The same command resumes an interrupted table: finished runs are kept, and tables share them.
    """
    options = globals_of(context)
    as_json = as_json or options.json
    with reported(as_json):
        from edgefed.simulator.backend import place

        if listed or not name:
            _list(as_json)
            return
        folder = out.expanduser().absolute()
        part = _Part(parse_seeds(seeds), rows or (), column_names or ())
        study = _study(name, scale, part, data_folder, folder)
        if recipes is not None:
            _write_recipes(study, recipes.expanduser(), as_json)
            return
        study = _begin(options, study)
        with place(on, address, [cell.case.recipe for cell in study.cells], jobs) as executors:
            outcome = run_plan(
                options,
                study.plan(),
                folder,
                executors,
                recompute=recompute,
                jobs=jobs,
                owner="edgefed reproduce",
            )
        _end(options, study, outcome, folder / f"{study.table.name}-{study.scale}", as_json)


@dataclass(frozen=True)
class _Part:
    """What of a table was asked for; nothing for all of it."""

    seeds: Sequence[int]
    rows: Sequence[str]
    columns: Sequence[str]


def _list(as_json: bool) -> None:
    from edgefed.reproduce.outputs import described
    from edgefed.reproduce.paper_tables import tables

    listed = tables().values()
    if as_json:
        json_out([described(table) for table in listed])
    else:
        head = ("TABLE", "PUBLISHED", "TITLE")
        kinds = ("numbers" if table.published else "orders" for table in listed)
        data(columns([head, *((t.name, k, t.title) for t, k in zip(listed, kinds, strict=True))]))


def _study(name: str, scale: str, part: _Part, data_folder: Path | None, folder: Path) -> Study:
    from edgefed.api.recipe_source import checked
    from edgefed.reproduce.paper_tables import find, scale_of
    from edgefed.reproduce.plan import make_study

    return make_study(
        find(name),
        scale_of(scale),
        checked,
        seeds=part.seeds,
        rows=part.rows,
        columns=part.columns,
        data=data_folder,
        scratch=folder,
    )


def _write_recipes(study: Study, folder: Path, as_json: bool) -> None:
    from edgefed.reproduce.outputs import write_recipes

    paths = [str(path) for path in write_recipes(study, folder)]
    if as_json:
        json_out(paths)
    else:
        data("\n".join(paths))


def _begin(options: Globals, study: Study) -> Study:
    """Download what is not there, once rather than fail in every run, and say what will be run."""
    from edgefed.reproduce.plan import fetched

    _check_rows(study)
    study = fetched(study, options.settings().value.state / "data")
    if not options.quiet:
        runs = counted(len(study.cells) * len(study.seeds), "run")
        talk(f"{study.table.name}, scale {study.scale}: {runs}; {study.scaled.takes}")
    return study


def _check_rows(study: Study) -> None:
    from edgefed.errors import UnknownNameError

    if not study.cells:
        reasons = ", ".join(sorted(set(study.missing.values())))
        raise UnknownNameError(
            f"No row of {study.table.name} can be run: {reasons}.",
            code="reproduce.algorithm",
            hint="edgefed algo list",
        )


def _end(
    options: Globals, study: Study, outcome: TrialOutcome, folder: Path, as_json: bool
) -> None:
    """Print the table and write its files; what was not run ends the command with its exit code."""
    from edgefed.reproduce.outputs import summary, text, write_outputs

    write_outputs(study, outcome, folder)
    if as_json:
        json_out(summary(study, outcome, folder))
    else:
        data(text(study, outcome))
    if not options.quiet:
        seeds = ", ".join(map(str, study.seeds))
        talk(f"  ± standard deviation over seeds {seeds}; files: {folder}")
    raise_failures(study.plan(), outcome, folder.parent)
    _raise_missing(study)


def _raise_missing(study: Study) -> None:
    from edgefed.errors import PartlyDoneError

    if study.missing:
        missing = "; ".join(f"{row} ({reason})" for row, reason in study.missing.items())
        raise PartlyDoneError(
            f"{study.table.name} lacks rows that this version cannot run: {missing}.",
            code="reproduce.algorithm",
            hint="edgefed algo list",
        )

"""``edgefed run report``: a run as one HTML page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefed.cli.common.context import Globals, globals_of
from edgefed.cli.common.help import examples
from edgefed.cli.common.options import Local, RunOrFolder

if TYPE_CHECKING:
    from edgefed.control.coordinator_client import CoordinatorClient
    from edgefed.report.run_data import RunData

EPILOG = examples(
    "edgefed run report",
    "edgefed run report r-0001 --out report.html",
    "edgefed run report r-0001 --local",
    "edgefed run report PATH/TO/RUN/FOLDER",
)


def report(
    context: typer.Context,
    run: RunOrFolder = "",
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="File to write; by default RUN.html in this folder.", metavar="FILE"
        ),
    ] = None,
    local: Local = False,
) -> None:
    """Write an HTML report of a run: curves, devices, labels, bytes, times, events, recipe.

    The page is self-contained: it can be mailed, and opened without a network.
    """
    from edgefed.files.writing import write_output
    from edgefed.report.page import report as page_of

    options = globals_of(context)
    run_data = _with_advice(options, run_data_of(options, run, local, "edgefed run report"))
    name = str(run_data.record["run"])
    file = (out or Path(f"{name}.html")).expanduser().absolute()
    write_output(file, page_of(run_data).encode())
    options.answer({"run": name, "file": str(file)}, str(file))
    options.note(f"  open it in a browser: {file.as_uri()}")


def _with_advice(options: Globals, run_data: RunData) -> RunData:
    """Return a run's data with the tables of the advice that it followed, if it did."""
    from edgefed.advise.checks import advice_folder
    from edgefed.advise.tables import run_tables
    from edgefed.events.base.method_tables import TableView

    record, summary = run_data.record, run_data.summary
    folder = advice_folder(options.settings().value.state, str(record.get("name", "")))
    known = {**record, "recipe": run_data.recipe, "history": run_data.rounds}
    views = [TableView(table=made) for made in run_tables(folder, known, len(summary.devices))]
    return replace(
        run_data, summary=summary.model_copy(update={"tables": (*summary.tables, *views)})
    )


def run_data_of(options: Globals, run: str, local: bool, command: str) -> RunData:
    """Return the data of a run: of a folder, of this machine, or from the coordinator.

    Args:
        options: the typed options.
        run: an id or its beginning, or a folder; empty for the newest run.
        local: search the state folder without asking a coordinator.
        command: for the hint of an error.

    Raises:
        UnknownNameError: there is no such run.
        UnreachableError: no coordinator answers.
        StorageError: its event log cannot be read.
    """
    from edgefed.cli.common.run_folders import folder_of, is_folder
    from edgefed.report.run_data import run_data_of_folder

    if local or is_folder(run):
        return run_data_of_folder(folder_of(options, run, local, command))
    return _asked(options, run, command)


def _asked(options: Globals, run: str, command: str) -> RunData:
    """Return the coordinator's data; the events come from disk if they are on this one."""
    from edgefed.cli.common.context import newest
    from edgefed.events.base.log import Log
    from edgefed.events.history.summary import RunSummary, summarise
    from edgefed.report.run_data import EVENTS, run_data_of_response

    def summary(coordinator: CoordinatorClient, name: str, folder: Path) -> RunSummary:
        log = Log(folder / EVENTS)
        if log.path.is_file():
            return summarise(log.events())
        return RunSummary.model_validate(coordinator.ask("run.summary", run=name))

    with options.connected(f"{command} {run}") as coordinator:
        record = coordinator.ask("run.show", run=run or newest(coordinator))
        run_summary = summary(coordinator, record["run"], Path(record["folder"]))
    return run_data_of_response(record, run_summary)

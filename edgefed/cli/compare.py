"""``edgefed run compare``: runs side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from edgefed.cli import completion
from edgefed.cli.context import Globals, globals_of
from edgefed.cli.help import examples
from edgefed.cli.options import RUNS, Local, named_run
from edgefed.console import columns

if TYPE_CHECKING:
    from edgefed.events.known_runs import RunDetails
    from edgefed.events.run_comparison import Comparison

EPILOG = examples(
    "edgefed run compare r-0001 r-0002", "edgefed run compare r-0001 r-0002 r-0003 --local --json"
)


def compare(
    context: typer.Context,
    runs: Annotated[
        list[str],
        typer.Argument(help=f"Two or more runs, each a {RUNS}.", autocompletion=completion.runs),
    ],
    local: Local = False,
) -> None:
    """Put runs side by side: accuracy, bytes, time, epsilon, and the settings that differ."""
    from edgefed.errors import UsageError
    from edgefed.events.run_comparison import compare as compared

    options = globals_of(context)
    if len(runs) < 2:
        raise UsageError("A comparison needs two runs or more.",
                         hint="edgefed run compare RUN RUN")  # fmt: skip
    comparison = compared(_details(options, runs, local))
    options.answer(comparison.to_json(), _table(comparison))


def _details(options: Globals, runs: list[str], local: bool) -> list[RunDetails]:
    from edgefed.cli.context import newest
    from edgefed.cli.local_runs import local_run
    from edgefed.cli.run_folders import is_folder
    from edgefed.events.known_runs import RunDetails

    state, named = options.settings().value.state, [named_run(run) for run in runs]
    here = {run: local_run(state, run) for run in named if local or is_folder(run)}
    if len(here) < len(set(named)):
        command = f"edgefed run compare {' '.join(runs)}"
        with options.connected(command) as coordinator:
            for run in set(named) - here.keys():
                here[run] = coordinator.ask("run.show", run=run or newest(coordinator))
    return [RunDetails.model_validate(here[run]) for run in named]


def _table(comparison: Comparison) -> str:
    head = ("", *(run.run for run in comparison.runs))
    blank = ("",) * len(head)
    differences = comparison.differences() or [("settings", *("the same" for _ in head[1:]))]
    return columns([head, *comparison.results(), blank, *differences])

"""``edgefed run compare``: runs side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from edgefed.cli.common import completion
from edgefed.cli.common.context import Globals, globals_of
from edgefed.cli.common.help import examples
from edgefed.cli.common.options import RUNS, Local, named_run
from edgefed.terminal.console import columns

if TYPE_CHECKING:
    from edgefed.events.history.known_runs import RunDetails
    from edgefed.events.history.run_comparison import Comparison

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
    from edgefed.events.history.run_comparison import compare as compared

    options = globals_of(context)
    if len(runs) < 2:
        raise UsageError("A comparison needs two runs or more.",
                         hint="edgefed run compare RUN RUN")  # fmt: skip
    comparison = compared(_details(options, runs, local))
    options.answer(comparison.to_json(), _table(comparison))


def _details(options: Globals, runs: list[str], local: bool) -> list[RunDetails]:
    from edgefed.cli.common.context import newest
    from edgefed.cli.common.local_runs import local_run
    from edgefed.cli.common.run_folders import is_folder
    from edgefed.events.history.known_runs import RunDetails

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

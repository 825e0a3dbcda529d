"""``edgefed run replay``: the dashboard on a recorded run, without a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from edgefed.cli.common import completion
from edgefed.cli.common.context import Globals, globals_of
from edgefed.cli.common.help import examples
from edgefed.cli.common.options import RUNS, Ascii, named_run

EPILOG = examples(
    "edgefed run replay",
    "edgefed run replay r-0001 --round 7 --speed 8",
    "edgefed run replay events.jsonl",
)

Speed = Annotated[
    Literal["1", "2", "4", "8", "16", "32", "64", "max"],
    typer.Option("--speed", help="Recorded seconds that a replay shows in one second."),
]
FirstRound = Annotated[
    int, typer.Option("--round", min=1, help="Round with which a replay begins.")
]


def replay(
    context: typer.Context,
    run: Annotated[
        str,
        typer.Argument(
            help=f"Of this machine: {RUNS}, its name, or an event file; by default the newest run.",
            autocompletion=completion.runs,
        ),
    ] = "",
    speed: Speed = "1",
    first_round: FirstRound = 1,
    ascii: Ascii = None,  # noqa: A002 - the option's name
) -> None:
    """Open the dashboard on a recorded run of this machine, without a broker.

    It is edgefed ui --replay. Keys: p pauses, + and - change the speed, . and ,
    go to the next round and back, # asks for the number of a round.
    """
    options = globals_of(context)
    show_replay(options, run, speed, first_round, ascii)


def show_replay(
    options: Globals, run: str, speed: str, first_round: int, letters: bool | None
) -> None:
    """Show the dashboard on a recorded run until it is closed.

    Args:
        options: the typed options.
        run: an id or its beginning, a name, a folder, or an event file; empty for the newest run.
        speed: recorded seconds in one, or ``max``.
        first_round: the round to begin with.
        letters: letters in place of symbols; None follows the locale.

    Raises:
        UnknownNameError: there is no such run or file.
        StorageError: the file cannot be read.
        DataError: it has no events.
        UsageError: there is no such round, or no terminal.
    """
    from edgefed.cli.common.terminal import require_terminal
    from edgefed.events.history.recording import Recording

    loaded = options.settings()
    state = loaded.value.state
    recording = Recording.read_nonempty(event_file(state, run))
    first = recording.start_of_round(first_round) if first_round > 1 else 0
    require_terminal("edgefed run report, or edgefed run show --local")
    from edgefed.cli.programs.show_dashboard import show_recording
    from edgefed.process.clock import SystemClock
    from edgefed.tui.keys.keymap import checked_keymap

    show_recording(
        recording,
        SystemClock(),
        first=first,
        speed=float(speed.replace("max", "inf")),
        ascii=letters,
        state=state,
        keys=checked_keymap(loaded),
    )


def event_file(state: Path, run: str) -> Path:
    """Return the named event file: itself, in a folder, or in the state folder.

    Raises:
        UnknownNameError: there is none.
    """
    from edgefed.cli.common.run_folders import found, is_folder
    from edgefed.config.fleet.settings_files import expand
    from edgefed.errors import UnknownNameError
    from edgefed.files.writing import file_exists, folder_exists
    from edgefed.report.run_data import EVENTS

    run = named_run(run)
    path = expand(Path(run))
    if path.suffix == ".jsonl" or is_folder(run) or (run and file_exists(path)):
        path = path / EVENTS if folder_exists(path) else path
    else:
        path = found(state, _id_of(state, run)) / EVENTS
    if not file_exists(path):  # a pipe would be waited for
        raise UnknownNameError(
            f"There is no event file {path}.",
            code="recording.missing",
            hint="name a run (edgefed run list --local), a run's folder or its events.jsonl",
        )
    return path


def _id_of(state: Path, run: str) -> str:
    """Return the id of the newest run with a name; the text itself if it begins an id or no run."""
    from edgefed.cli.common.local_runs import local_runs
    from edgefed.cli.common.run_folders import newest_first

    if any(folder.name.startswith(run) for folder in newest_first(state)):
        return run
    return next((str(row["run"]) for row in local_runs(state) if row["name"] == run), run)

"""Find a run's folder: the one given, one in the state folder, or the one of the coordinator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgefed.simulator.work_folder import SIMULATIONS

if TYPE_CHECKING:
    from edgefed.cli.common.context import Globals

PLACES = (SIMULATIONS, "coordinator/*", "demo/*/coordinator/*")
"""Folders of the state folder that contain runs, of coordinators and simulations."""


def is_folder(run: str) -> bool:
    """Whether the text typed for a run is a folder, and not an id."""
    from edgefed.config.fleet.settings_files import expand
    from edgefed.files.writing import file_exists
    from edgefed.report.run_data import EVENTS

    return "/" in run or (bool(run) and file_exists(expand(Path(run)) / EVENTS))


def typed_folder(run: str) -> Path:
    """Return the folder that was typed for a run."""
    from edgefed.config.fleet.settings_files import expand

    return expand(Path(run)).absolute()


def folder_of(options: Globals, run: str, local: bool, command: str) -> Path:
    """Return the folder of a run: typed, in the state folder, or where its coordinator keeps it.

    Args:
        options: the typed options.
        run: an id or its beginning, or a folder; empty for the newest run.
        local: search the state folder without asking a coordinator.
        command: for the hint of an error.

    Raises:
        UnknownNameError: there is no such run.
        UnreachableError: no coordinator answers.
    """
    if is_folder(run):
        return typed_folder(run)
    if local:
        return found(options.settings().value.state, run)
    from edgefed.cli.common.context import newest

    with options.connected(f"{command} {run}") as coordinator:
        return Path(coordinator.ask("run.show", run=run or newest(coordinator))["folder"])


def found(state: Path, run: str) -> Path:
    """Return the folder of a run in the state folder, of the coordinator or a simulation.

    Args:
        state: the state folder.
        run: an id or its beginning; empty for the newest run.

    Raises:
        UnknownNameError: none or several match.
    """
    from edgefed.coordinator.storage.run_names import only_match
    from edgefed.errors import UnknownNameError

    folders = {path.name: path for path in newest_first(state)}
    if not run and not folders:
        raise UnknownNameError(f"No run in {state}.", code="run.unknown", hint="edgefed sim run")
    return folders[only_match(run, list(folders), str(state)) if run else next(iter(folders))]


def newest_first(state: Path) -> list[Path]:
    """Return the folders of all runs in the state folder; of two with one id, the newer one."""
    paths = [path for place in PLACES for path in state.glob(f"{place}/runs/r-*")]
    paths.sort(key=lambda path: path.stat().st_mtime)
    return list(reversed({path.name: path for path in paths}.values()))

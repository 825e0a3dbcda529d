"""Where a run's files are: in a typed folder, the state folder, or where a coordinator says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgefed.cli.context import Globals


def is_folder(run: str) -> bool:
    """Whether what was typed for a run is a folder, and no id."""
    from edgefed.report.facts import EVENTS

    return "/" in run or (bool(run) and (Path(run).expanduser() / EVENTS).is_file())


def folder_of(options: Globals, run: str, local: bool) -> Path:
    """Return the folder of a run: typed, in the state folder, or where its coordinator keeps it.

    Args:
        options: the typed options.
        run: an id or its beginning, or a folder; empty for the newest run.
        local: look in the state folder and ask no coordinator.

    Raises:
        UnknownNameError: there is no such run.
        UnreachableError: no coordinator answers.
    """
    if is_folder(run):
        return Path(run).expanduser()
    if local:
        return found(options.settings().value.state, run)
    from edgefed.cli.connection import connected
    from edgefed.cli.run import newest

    with connected(options) as coordinator:
        return Path(coordinator.ask("run.show", run=run or newest(coordinator))["folder"])


def found(state: Path, run: str) -> Path:
    """Return the folder of a run in the state folder, whoever ran it.

    Raises:
        UnknownNameError: none or several match.
    """
    from edgefed.errors import UnknownNameError

    folders = [
        path
        for places in ("simulations/runs", "coordinator/*/runs", "demo/*/coordinator/*/runs")
        for path in state.glob(f"{places}/r-*")
        if path.name.startswith(run)
    ]
    newest = max(folders, key=lambda path: path.stat().st_mtime, default=None)
    if newest is None or (run and len(folders) > 1 and newest.name != run):
        told = f"{len(folders)} runs match '{run}'" if folders else f"No run '{run}'"
        raise UnknownNameError(
            f"{told} in {state}.", code="run.unknown", hint="give the whole id, or the folder"
        )
    return newest

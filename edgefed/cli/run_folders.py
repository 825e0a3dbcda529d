"""Find the folder of a run: typed, in the state folder, or at its coordinator; and its model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgefed.cli.options import LATEST
from edgefed.simulator.work_folder import SIMULATIONS

if TYPE_CHECKING:
    from edgefed.cli.context import Globals

PLACES = (SIMULATIONS, "coordinator/*", "demo/*/coordinator/*")
"""Folders of the state folder that contain runs, of coordinators and simulations."""


def is_folder(run: str) -> bool:
    """Whether what was typed for a run is a folder, and no id."""
    from edgefed.config.settings_files import expand
    from edgefed.files import file_exists
    from edgefed.report.run_data import EVENTS

    return "/" in run or (bool(run) and file_exists(expand(Path(run)) / EVENTS))


def typed_folder(run: str) -> Path:
    """Return the folder that was typed for a run."""
    from edgefed.config.settings_files import expand

    return expand(Path(run)).absolute()


def folder_of(options: Globals, run: str, local: bool, command: str) -> Path:
    """Return the folder of a run: typed, in the state folder, or where its coordinator keeps it.

    Args:
        options: the typed options.
        run: an id or its beginning, or a folder; empty for the newest run.
        local: look in the state folder and ask no coordinator.
        command: for the hint of an error.

    Raises:
        UnknownNameError: there is no such run.
        UnreachableError: no coordinator answers.
    """
    if is_folder(run):
        return typed_folder(run)
    if local:
        return found(options.settings().value.state, run)
    from edgefed.cli.context import newest

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
    from edgefed.coordinator.run_names import only_match
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


@dataclass(frozen=True)
class ModelSource:
    """Where a model is.

    Attributes:
        path: a model file, or the folder of a run.
        run: the run's id; empty for a file.
        is_simulated: whether it is a run that this machine has simulated, whose code it has run.
        told: which run ``latest`` is, and the newer ones that have no model yet; empty otherwise.
    """

    path: Path
    run: str = ""
    is_simulated: bool = False
    told: str = ""


def model_source(state: Path, name: str, *, best: bool = False) -> ModelSource:
    """Return where the model is that a command names.

    Args:
        state: the state folder, which has the runs of coordinators and simulations.
        name: a file, a run's folder, a run's id or its beginning, or ``latest`` for the newest run
            that has a model.
        best: whether the model of the best round is wanted.

    Raises:
        UnknownNameError: no run, or several, have this name; ``model.none``: no run has a model.
        MissingDataError: there is no such file.
    """
    from edgefed.cli.run_folders import found
    from edgefed.data.paths import require_file
    from edgefed.simulator.work_folder import SIMULATIONS

    path = Path(name).expanduser()
    if path.is_file() or (path.is_dir() and "/" in name):
        return ModelSource(path)
    if "/" in name or path.suffix:
        require_file(path)
    folder, told = _newest(state, best) if name == LATEST else (found(state, name), "")
    return ModelSource(folder, folder.name, folder.parent.parent.name == SIMULATIONS, told)


def _newest(state: Path, best: bool) -> tuple[Path, str]:
    """Return the folder of the newest run that has a model, and what to tell about it."""
    from edgefed.cli.run_folders import newest_first
    from edgefed.errors import UnknownNameError
    from edgefed.learn.model_files import BEST_FILE, MODEL_FILE

    file, folders = BEST_FILE if best else MODEL_FILE, newest_first(state)
    place = next((place for place, each in enumerate(folders) if (each / file).is_file()), None)
    if place is None:
        raise UnknownNameError(
            f"No run in {state} has a {file}.",
            code="model.none",
            hint="leave --best out" if best else "a run writes its model when it ends",
        )
    skipped = ", ".join(each.name for each in folders[:place])
    told = f"run {folders[place].name}" + (f"; no {file} yet: {skipped}" if skipped else "")
    return folders[place], told

"""Find the model that a command names: a run of this machine's state folder, or a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgefed.cli.common.options import LATEST


@dataclass(frozen=True)
class ModelSource:
    """The place of a model.

    Attributes:
        path: a model file, or the folder of a run.
        run: the run's id; empty for a file.
        is_simulated: whether it is a run that this machine has simulated, whose code it has run.
        note: the run that ``latest`` stands for, and newer ones without a model; empty otherwise.
    """

    path: Path
    run: str = ""
    is_simulated: bool = False
    note: str = ""


def model_source(
    state: Path, name: str, *, best: bool = False, unfinished: bool = False
) -> ModelSource:
    """Return the place of the model that a command names.

    Args:
        state: the state folder, which has the runs of coordinators and simulations.
        name: a file, a run's folder, a run's id or its beginning, or ``latest`` for the newest run
            that has a model.
        best: whether to find the model of the best round.
        unfinished: whether ``latest`` may be a run that was aborted or has failed.

    Raises:
        UnknownNameError: no run, or several, have this name; ``model.none``: no run has a model.
        UsageError: ``model.unfinished``: ``latest`` would be an unfinished run.
        MissingDataError: there is no such file.
    """
    from edgefed.cli.common.run_folders import found
    from edgefed.data.base.paths import require_file
    from edgefed.simulator.work_folder import SIMULATIONS

    path = Path(name).expanduser()
    if path.is_file() or (path.is_dir() and "/" in name):
        return ModelSource(path)
    if "/" in name or path.suffix:
        require_file(path)
    if name != LATEST:
        folder, note = found(state, name), ""
    else:
        folder, note = _newest(state, best)
        if not unfinished:
            _check_finished(state, folder)
    return ModelSource(folder, folder.name, folder.parent.parent.name == SIMULATIONS, note)


def _newest(state: Path, best: bool) -> tuple[Path, str]:
    """Return the folder of the newest run that has a model, and a message about it."""
    from edgefed.cli.common.run_folders import newest_first
    from edgefed.errors import UnknownNameError
    from edgefed.learn.modeling.model_file_reader import BEST_FILE, MODEL_FILE

    file, folders = BEST_FILE if best else MODEL_FILE, newest_first(state)
    place = next((place for place, folder in enumerate(folders) if (folder / file).is_file()), None)
    if place is None:
        raise UnknownNameError(
            f"No run in {state} has a {file}.",
            code="model.none",
            hint="leave --best out" if best else "a run writes its model when it ends",
        )
    skipped = ", ".join(folder.name for folder in folders[:place])
    note = f"run {folders[place].name}" + (f"; no {file} yet: {skipped}" if skipped else "")
    return folders[place], note


def _check_finished(state: Path, folder: Path) -> None:
    """Check that the newest run was not aborted and did not fail, as far as its row is known."""
    from edgefed.cli.common.local_runs import local_run
    from edgefed.errors import UnknownNameError, UsageError

    try:
        record = local_run(state, str(folder))
    except UnknownNameError:  # a copied folder
        return
    if record["status"] in ("aborted", "failed"):
        ended = "was aborted" if record["status"] == "aborted" else "failed"
        rounds = f"{record['round']} of {record['rounds']} rounds"
        raise UsageError(
            f"The newest run with a model, {folder.name}, {ended} after {rounds}.",
            code="model.unfinished",
            hint=f"name the run, {folder.name} or another one, or add --unfinished",
        )

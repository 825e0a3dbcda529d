"""Find the model that a command names: a run of this machine's state folder, or a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LATEST = "latest"
"""The word for the newest run."""


@dataclass(frozen=True)
class ModelSource:
    """Where a model is.

    Attributes:
        path: a model file, or the folder of a run.
        run: the run's id; empty for a file.
        is_simulated: whether it is a run that this machine has simulated, whose code it has run.
    """

    path: Path
    run: str = ""
    is_simulated: bool = False


def model_source(state: Path, name: str) -> ModelSource:
    """Return where the model is that a command names.

    Args:
        state: the state folder, which has the runs of coordinators and simulations.
        name: a file, a run's folder, a run's id or its beginning, or ``latest``.

    Raises:
        UnknownNameError: no run, or several, have this name.
        MissingDataError: there is no such file.
    """
    from edgefed.cli.run_folders import SIMULATIONS, found
    from edgefed.data.paths import require_file

    path = Path(name).expanduser()
    if path.is_file() or (path.is_dir() and "/" in name):
        return ModelSource(path)
    if "/" in name or path.suffix:
        require_file(path)
    folder = found(state, "" if name == LATEST else name)
    return ModelSource(folder, folder.name, folder.parent.parent.name == SIMULATIONS)

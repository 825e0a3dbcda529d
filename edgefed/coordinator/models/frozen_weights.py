"""The file of a run's frozen weights, which a resumed run reads instead of their source."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError
from safetensors.numpy import load_file

from edgefed.coordinator.storage.state_files import write_arrays
from edgefed.errors import StorageError
from edgefed.learn.base.types import Tensors

FILE = "frozen.safetensors"


def save_frozen(folder: Path, arrays: Tensors) -> None:
    """Write the frozen weights of a run's model into the run's folder, if there are any."""
    if arrays:
        write_arrays(folder / FILE, arrays)


def read_frozen(folder: Path) -> Tensors:
    """Return the frozen weights of a run's model; none for a model without, or a new run.

    Raises:
        StorageError: the file is damaged.
    """
    path = folder / FILE
    if not path.exists():
        return {}
    try:
        return dict(load_file(path))
    except (OSError, SafetensorError) as error:
        raise StorageError(
            f"The frozen weights of run {folder.name} cannot be read from {path}: {error}.",
            code="storage.damaged",
            hint="restore the file from a backup, or start the run again",
        ) from error

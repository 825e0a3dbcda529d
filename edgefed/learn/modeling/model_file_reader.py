"""Read model files: the description, and the tensors of each model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from edgefed.errors import DataError, EdgeFedError
from edgefed.files.writing import storage_error
from edgefed.learn.base.types import Tensors
from edgefed.learn.modeling.model_description import ModelDescription, read_description

MODEL_FILE = "model.safetensors"
"""The model file of a run's last round, in the run's folder."""

BEST_FILE = "best.safetensors"
"""The model file of the round with the best score."""


class OpenModelFile:
    """A model file that is open for reading.

    Args:
        file: of safetensors.
        description: the file's description.
    """

    def __init__(self, file: Any, description: ModelDescription) -> None:
        self._file = file
        self.description = description

    def models(self) -> dict[str, Tensors]:
        """Read and return the tensors of each model, by its name."""
        tensors = {name: self._file.get_tensor(name) for name in self._file.keys()}  # noqa: SIM118
        names = self.description.models
        if len(names) == 1:
            return {names[0]: tensors}
        models: dict[str, Tensors] = {name: {} for name in names}
        for key, array in tensors.items():
            name, _, part = key.partition("/")
            models.setdefault(name, {})[part] = array
        return models


@contextmanager
def opened_model_file(path: Path) -> Iterator[OpenModelFile]:
    """Open a model file; a failure to read it is raised as an EdgeFed error.

    Raises:
        DataError: ``model.file``: it is no model file, or only a part of one.
        StorageError: it cannot be read.
    """
    try:
        with safe_open(path, "numpy") as file:
            yield OpenModelFile(file, read_description(file.metadata() or {}, path))
    except OSError as error:
        raise storage_error(path, error) from error
    except (SafetensorError, ValueError, TypeError, KeyError) as error:
        if isinstance(error, EdgeFedError):
            raise
        raise DataError(
            f"{path} is no safetensors file, or only a part of one.",
            code="model.file",
            hint="give the model.safetensors of a run of EdgeFed",
        ) from error

"""The result of a simulation: its scores, its weights, and its model for predictions."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import load

from edgefed.api.rounds import metrics_of
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.trackers.base import Row
from edgefed.files.writing import write_output
from edgefed.learn.modeling.model_file_reader import MODEL_FILE
from edgefed.terminal.units import counted

if TYPE_CHECKING:
    from edgefed.prediction.loaded_model import LoadedModel


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """A finished run.

    Attributes:
        recipe: of the run, complete with its defaults.
        rounds: a row for each round, as in ``metrics.jsonl``: its number, scores, time and bytes.
        scores: the metrics of the last round that was tested, by name, such as ``accuracy`` and
            ``loss``; with the prefix ``final_`` if they were measured again after it.
        weights_digest: of the model; equal digests mean equal bits.
        folder: the run's files; None where they were not kept.
        summary: the object that ``to_json`` returns.
        file: the bytes of ``model.safetensors``.
    """

    recipe: Recipe
    rounds: tuple[Row, ...]
    scores: Mapping[str, float]
    weights_digest: str
    folder: Path | None
    summary: Mapping[str, Any] = field(repr=False)
    file: bytes = field(repr=False)

    @cached_property
    def weights(self) -> dict[str, np.ndarray[Any, Any]]:
        """The arrays of the model, by name; of several models as ``MODEL/NAME``."""
        return load(self.file)

    @cached_property
    def model(self) -> LoadedModel:
        """The model, ready for predictions; see ``edgefed.load_model``.

        Raises:
            EdgeFedError: it cannot be built.
        """
        from edgefed.prediction.load import load_model

        with tempfile.TemporaryDirectory(prefix="edgefed-") as folder:
            path = self.save(Path(folder) / MODEL_FILE)
            return load_model(path, user_models=True)  # the run has imported it already

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model to a ``.safetensors`` file and return its path.

        ``edgefed.load_model`` and ``edgefed predict`` read it.

        Raises:
            StorageError: it cannot be written; a previous file is intact.
        """
        place = Path(path)
        write_output(place, self.file)
        return place

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``edgefed sim run --json`` prints."""
        return dict(self.summary)

    def __repr__(self) -> str:
        shown = ("accuracy", "loss")
        scores = [f"{name} {self.scores[name]:.4g}" for name in shown if name in self.scores]
        parts = [counted(len(self.rounds), "round"), *scores, f"digest {self.weights_digest[:12]}"]
        return f"<Result {self.recipe.name}: {', '.join(parts)}>"


def scores_of(rounds: Sequence[Row], final: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of the last round that was tested, and those measured after it."""
    measured = [metrics_of(row) for row in rounds]
    tested = [metrics for metrics in measured if "loss" in metrics]
    last = (tested or measured or [{}])[-1]
    return {**last, **{f"final_{name}": value for name, value in final.items()}}

"""Predict a command's inputs, part by part; an unreadable input has an answer, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgefed.errors import DataError
from edgefed.prediction.inputs import Pixels
from edgefed.prediction.inputs_found import Archive, Found, InputImage
from edgefed.prediction.loaded_model import BATCH, LoadedModel
from edgefed.prediction.predictions import Predictions

SKIPPED = ("data.unreadable", "data.too_large")
"""Codes of the errors of one image, which do not concern the others."""


@dataclass(frozen=True, eq=False)
class PredictionAnswer:
    """The model's prediction for one input.

    Attributes:
        path: the file.
        row: the input's number in an NPZ file; None for an image file.
        expected: the known class of the input; empty if unknown.
        outputs: probabilities, or numbers; None for a file that cannot be read.
        error: the reason why it cannot be read.
    """

    path: Path
    row: int | None
    expected: str
    outputs: npt.NDArray[Any] | None
    error: str = ""

    @property
    def name(self) -> str:
        """The file, with the number of its row."""
        return str(self.path) if self.row is None else f"{self.path}[{self.row}]"

    def predictions(self, labels: tuple[str, ...]) -> Predictions:
        """Return the outputs as predictions of one input."""
        assert self.outputs is not None
        return Predictions(self.outputs[None], labels)


def answers(
    model: LoadedModel, inputs: Found, batch: int = BATCH
) -> Iterator[list[PredictionAnswer]]:
    """Yield a model's predictions for files and arrays, in their order, a batch at a time.

    Raises:
        DataError: ``predict.input``: the model does not take such inputs.
    """
    for start in range(0, len(inputs.images), batch):
        yield _of_images(model, inputs.images[start : start + batch])
    for archive in inputs.archives:
        count = len(archive.inputs)
        pixels = not archive.is_scaled and model.are_pixels(archive.inputs)
        for start in range(0, count, batch):
            rows = range(start, min(start + batch, count))
            yield _of_rows(model, archive, rows, pixels=pixels)


def _of_images(model: LoadedModel, files: Sequence[InputImage]) -> list[PredictionAnswer]:
    read = [_read(model, file.path) for file in files]
    pixels = [image for image in read if not isinstance(image, str)]
    outputs = iter(model.compute(np.stack(pixels)) if pixels else ())
    return [
        PredictionAnswer(file.path, None, file.expected, None, content)
        if isinstance(content, str)
        else PredictionAnswer(file.path, None, file.expected, next(outputs))
        for file, content in zip(files, read, strict=True)
    ]


def _read(model: LoadedModel, path: Path) -> Pixels | str:
    """Return an image's pixels, or why it cannot be read."""
    try:
        return model.pixels(path)
    except DataError as error:
        if error.code in SKIPPED:
            return error.message
        raise


def _of_rows(
    model: LoadedModel, archive: Archive, rows: range, *, pixels: bool
) -> list[PredictionAnswer]:
    part = archive.inputs[rows.start : rows.stop]
    outputs = model.compute(model.inputs_of(part, pixels=pixels))
    return [
        PredictionAnswer(archive.path, row, archive.expected[row], output)
        for row, output in zip(rows, outputs, strict=True)
    ]

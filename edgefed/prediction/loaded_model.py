"""A trained model that predicts: from arrays or image files, on the CPU or a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from edgefed.data.base.paths import require_file
from edgefed.data.devices.run_scale import are_pixels
from edgefed.data.images.image_decoding import read_pixels
from edgefed.errors import DataError
from edgefed.learn.base.processors import pick_device, repeatable
from edgefed.learn.base.transfers import download, place_module, upload
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_description import ModelDescription
from edgefed.learn.samples.sample_cache import channels_last
from edgefed.prediction.inputs import Pixels, fitted, is_image_shape, model_inputs
from edgefed.prediction.inputs_found import InputImage, find_inputs
from edgefed.prediction.networks import ImageOutputs, Outputs
from edgefed.prediction.predictions import Predictions

Array: TypeAlias = npt.NDArray[Any]
PathLikes: TypeAlias = "str | PathLike[str] | Sequence[str | PathLike[str]]"
"""An image file, or several."""

BATCH = 64
"""Inputs that go through a model at a time."""


class LoadedModel:
    """A model of a run, ready to predict; ``edgefed.prediction.load.load_model`` returns it.

    Args:
        description: in its file.
        model: its network, as in training.
        outputs: the networks with their weights.
        device: the processor, as ``pick_device`` takes it.
    """

    def __init__(
        self,
        description: ModelDescription,
        model: Model,
        outputs: Outputs,
        device: str | None = None,
    ) -> None:
        self.description = description
        self.device = pick_device(device)
        self._model = model
        self._outputs = outputs.eval()
        self._images = ImageOutputs(outputs, description.scale).eval()
        place_module(self._images, self.device)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input: (channels, height, width) for images."""
        return self._model.shape

    def __repr__(self) -> str:
        model = self.description
        return f"<LoadedModel {model.section.name} of run {model.run}, round {model.round}>"

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes; empty for a model that predicts numbers."""
        return self.description.labels if self._outputs.is_classifier else ()

    @property
    def vocabulary(self) -> int | None:
        """Number of tokens that the model knows; None where its inputs are not tokens."""
        return self._model.vocabulary

    @property
    def takes_images(self) -> bool:
        """Whether image files can be predicted."""
        return self.vocabulary is None and is_image_shape(self.shape)

    @property
    def outputs(self) -> Outputs:
        """The networks, from inputs to probabilities or numbers."""
        return self._outputs

    @property
    def images(self) -> ImageOutputs:
        """The networks, from uint8 pixels of their size to probabilities or numbers."""
        return self._images

    def predict(self, inputs: Array | PathLikes, *, batch: int = BATCH) -> Predictions:
        """Return the model's predictions.

        At most ``batch`` inputs are converted, scaled and computed at a time, so memory does not
        grow with their number.

        Args:
            inputs: one of

                - uint8 images (n, height, width), (n, height, width, channels) or (n, channels,
                  height, width) of any size;
                - floats (n, …) of the model's shape, scaled as in training; images all of whose
                  pixels are from 0 to 1 are scaled here, as training scales them;
                - tokens, integers (n, length);
                - the path of an image file or of a folder, or a sequence of paths. A folder stands
                  for the images in it and in its folders, whose names are taken for their classes.
            batch: number of inputs computed at a time.

        Raises:
            DataError: ``predict.input``: the model cannot take them; ``data.unreadable``: a file is
                no image; ``data.empty``: a folder has none.
        """
        if isinstance(inputs, (str, PathLike)):
            inputs = [inputs]
        if isinstance(inputs, Sequence):
            return self._of_files([Path(path) for path in inputs], batch)
        array = np.asarray(inputs)
        starts = range(0, max(1, len(array) if array.ndim else 1), batch)
        parts = (array[start : start + batch] if array.ndim else array for start in starts)
        pixels = self.are_pixels(array)
        return self._joined(self.compute(self.inputs_of(part, pixels=pixels)) for part in parts)

    def pixels(self, path: Path) -> Pixels:
        """Return an image file as the model takes it, uint8.

        Raises:
            DataError: ``predict.input``: the model takes no images; ``data.unreadable``: the file
                is missing or not an image; ``data.too_large``: the image has too many pixels.
        """
        if not self.takes_images:
            shape = "x".join(map(str, self.shape))
            raise DataError(
                f"The model takes no images: one input is {shape}.",
                code="predict.input",
                hint="give an NPZ file with inputs as x",
            )
        channels, height, width = self.shape
        size = height if height == width else 0
        return fitted(read_pixels(path, size, greyscale=channels == 1), self.shape)

    def _of_files(self, paths: Sequence[Path], batch: int) -> Predictions:
        files = [file for path in paths for file in self._files_of(path)]

        def parts() -> Iterator[Array]:
            for start in range(0, max(1, len(files)), batch):
                images = [self.pixels(file.path) for file in files[start : start + batch]]
                pixels = np.stack(images) if images else np.zeros((0, *self.shape), np.uint8)
                yield self.compute(pixels)

        made = self._joined(parts())
        known = tuple(file.expected for file in files)
        return replace(made, paths=tuple(file.path for file in files), expected=known)

    def _files_of(self, path: Path) -> list[InputImage]:
        if path.is_dir():
            return find_inputs([path], self.labels).images
        if self.takes_images:
            require_file(path)
        return [InputImage(path)]

    def _joined(self, parts: Iterator[Array]) -> Predictions:
        return Predictions(np.concatenate(list(parts)), self.labels)

    @torch.no_grad()
    def compute(self, inputs: Array) -> npt.NDArray[np.float32]:
        """Return the outputs of one batch of ``inputs.model_inputs``."""
        network = self._images if self._takes_pixels(inputs) else self._outputs
        with repeatable(self.device):
            own = np.require(inputs, requirements=["C", "W"])  # torch takes no other array
            tensor = upload(torch.from_numpy(own), self.device, "samples")
            outputs = download(network(channels_last(tensor)).float(), "outputs")
        return outputs.numpy()

    def _takes_pixels(self, inputs: Array) -> bool:
        return inputs.dtype == np.uint8 and self.vocabulary is None

    def are_pixels(self, array: Array) -> bool:
        """Return whether floats are unscaled pixels, which training would scale."""
        wanted = bool(self.description.scale.mean) and array.dtype.kind == "f"
        return wanted and array.ndim == 4 and array.size > 0 and are_pixels(array)

    def inputs_of(self, array: Array, *, pixels: bool = False) -> Array:
        """Return a user's array as ``compute`` takes it; see ``inputs.model_inputs``.

        Args:
            array: some inputs.
            pixels: whether they are floats that are to be scaled; see ``are_pixels``.
        """
        inputs = model_inputs(array, self._model)
        return self.description.scale.scaled(inputs) if pixels else inputs

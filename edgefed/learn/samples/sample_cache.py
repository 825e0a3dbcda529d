"""A device's samples as tensors, checked and copied to the training device once."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch

from edgefed.errors import DataError
from edgefed.files.samples import scaled_images
from edgefed.learn.base.transfers import download, is_remote, upload
from edgefed.learn.base.types import Array, Batch, Samples
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_memory import default_memory
from edgefed.learn.samples.pixel_scaling import PixelScaling, constants

EVAL_BATCH = 256
"""Samples that a test puts through the model at a time."""

IMAGE_VALUES = 2**22
"""Most values of the images that a test has in memory where it reads them batch by batch."""


CACHED_VALUES = 2**17
"""Values of images that are scaled at a time on a CPU."""


def eval_batch(inputs: Array) -> int:
    """Return how many samples a test puts through the model at a time."""
    if inputs.dtype != np.uint8 and scaled_images(inputs) is None:
        return EVAL_BATCH
    return max(1, min(EVAL_BATCH, IMAGE_VALUES // math.prod(inputs.shape[1:])))


FAR = 0.5
"""How far outside of 0 to 1 a pixel may be; noise takes a few that far."""

MOST_FAR = 0.01
"""Share of pixels that may be further outside."""

BLOCK = 256
"""Images whose pixels are looked at together."""


@dataclass(frozen=True)
class CachedSamples:
    """Samples on the training device.

    Attributes:
        inputs: tensor (n, …) of the model's kind of number, int64 for tokens, or uint8 images;
            empty for images that are read batch by batch.
        targets: int64 labels (n,), or targets (n, classes) of the model's kind of number.
        images: scales uint8 images, and reads those that are not in ``inputs``; None for samples
            without.
        scaling: how the pixels of images become inputs, or became them; None for other inputs.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    images: ImageReader | None = None
    scaling: PixelScaling | None = None

    @cached_property
    def has_pixels(self) -> bool:
        """Whether the inputs are images, or become pixels from 0 to 1 when their scale is undone.

        They do not where they were normalised and nothing tells how.
        """
        if self.scaling is None:
            return False
        if self.images is not None:
            return True
        blocks = (self.scaling.shares(block) for block in torch.split(self.inputs, BLOCK))
        counts = [((block - 0.5).abs() > 0.5 + FAR).sum() for block in blocks]
        far = int(download(torch.stack(counts).sum(), "statistics")) if counts else 0
        return far <= MOST_FAR * self.inputs.numel()

    @property
    def reads_batches(self) -> bool:
        """Whether each batch is read from the samples' file or array."""
        return self.images is not None and not len(self.inputs)

    def unscaled(self, index: torch.Tensor, rows: torch.Tensor) -> Batch:
        """Return the samples of some numbers, images as uint8 before their scale.

        Args:
            index: the numbers (batch,), on the device.
            rows: the same, on the host.
        """
        targets = self.targets.index_select(0, index)
        if self.images is not None and self.reads_batches:
            return Batch(self.images.read(rows.numpy()), targets, index)
        return Batch(channels_last(self.inputs.index_select(0, index)), targets, index)

    def scaled(self, batch: Batch) -> Batch:
        """Return a batch whose uint8 images are scaled to a model's inputs."""
        if self.images is None:
            return batch
        return replace(batch, inputs=channels_last(self.images.scaled(batch.inputs)))

    def part(self, start: int, stop: int) -> Batch:
        """Return the samples from ``start`` up to ``stop``."""
        targets = self.targets[start:stop]
        if self.images is not None:
            if self.reads_batches:
                rows = self.images.read(np.arange(start, start + len(targets)))
            else:
                rows = channels_last(self.inputs[start:stop])
            return Batch(channels_last(self.images.scaled(rows)), targets)
        return Batch(channels_last(self.inputs[start:stop]), targets)


class ImageReader:
    """Reads uint8 images in batches and scales them on the training device.

    Args:
        samples: has uint8 images (n, channels, height, width), perhaps in a file.
        kind: the model's kind of number.
        device: where the batches go.
    """

    def __init__(self, samples: Samples, kind: torch.dtype, device: torch.device) -> None:
        self._images = samples.inputs
        self.scale = samples.scale
        self._kind = kind
        self._device = device
        self._scale: list[torch.Tensor] = []
        if samples.scale.mean:
            # As large as an image: where the channels come last, a value for each channel would
            # be read from memory again for every pixel.
            self._scale = [
                channels_last(constant.expand(1, *self._shape))
                for constant in constants(samples.scale, device, kind)
            ]

    @property
    def _shape(self) -> tuple[int, ...]:
        return tuple(self._images.shape[1:])

    def read(self, rows: npt.NDArray[np.int64]) -> torch.Tensor:
        """Return the images of these numbers, uint8 (rows, channels, height, width)."""
        images = self._images[rows]
        if images.shape[1] == 1:
            images = np.ascontiguousarray(images).reshape(images.shape)
        return upload(channels_last(torch.from_numpy(images)), self._device, "samples")

    def scaled(self, images: torch.Tensor) -> torch.Tensor:
        """Return uint8 images as inputs: (x / 255 - mean) / std."""
        if self._device.type != "cpu":
            return self._scale_(images.to(self._kind).contiguous())
        inputs = torch.empty_like(images, dtype=self._kind)
        # A few images stay in the cache of the processor, and a batch does not.
        few = max(1, CACHED_VALUES // images[:1].numel()) if len(images) else 1
        for part, pixels in zip(torch.split(inputs, few), torch.split(images, few), strict=True):
            self._scale_(part.copy_(pixels))
        return inputs

    def _scale_(self, inputs: torch.Tensor) -> torch.Tensor:
        """Scale floats in place."""
        inputs.div_(255)
        if self._scale:
            mean, std = self._scale
            inputs.sub_(mean).div_(std)
        return inputs


class SampleCache:
    """Keeps samples on the device while a reference to them exists, so each is loaded once."""

    def __init__(self, model: Model, device: torch.device) -> None:
        self._model = model
        self._device = device
        self._loaded: WeakKeyDictionary[Samples, CachedSamples] = WeakKeyDictionary()

    def get(self, samples: Samples) -> CachedSamples:
        """Return ``samples`` on the device, loading them the first time.

        Raises:
            DataError: the model cannot be trained or tested on them.
        """
        loaded = self._loaded.get(samples)
        if loaded is not None:
            return loaded
        check_samples(samples, self._model)
        inputs, targets = (upload(part, self._device, "samples") for part in self.on_host(samples))
        loaded = self._loaded[samples] = self.cached(samples, inputs, targets)
        return loaded

    def on_host(self, samples: Samples) -> tuple[torch.Tensor, torch.Tensor]:
        """Return checked samples' inputs and targets as they go to the device.

        Images in uint8 stay where they are if the device is a CPU or has no room for them; then
        the inputs are empty.
        """
        kind = self._model.float_kind if samples.targets.dtype.kind == "f" else np.int64
        targets = _tensor(samples.targets, kind)
        if not samples.has_images or samples.inputs.ndim != 4:
            return _tensor(samples.inputs, self._model.input_kind), targets
        if is_remote(self._device) and samples.inputs.nbytes < default_memory(self._device):
            return _tensor(samples.inputs[:], np.uint8), targets
        return torch.empty(0), targets

    def cached(
        self, samples: Samples, inputs: torch.Tensor, targets: torch.Tensor
    ) -> CachedSamples:
        """Return samples whose inputs and targets, of ``on_host``, are on the device now."""
        if samples.inputs.ndim != 4:
            return CachedSamples(inputs, targets)
        kind = self._model.float_dtype
        reader = ImageReader(samples, kind, self._device)
        scaling = PixelScaling(samples.scale, reader.scaled, kind, self._device)
        return CachedSamples(inputs, targets, reader if samples.has_images else None, scaling)

    def copied_bytes(self) -> int:
        """Return the bytes of tensors that do not share the memory of their array."""
        pairs = [
            pair
            for samples, loaded in self._loaded.items()
            if not loaded.reads_batches
            for pair in ((samples.inputs, loaded.inputs), (samples.targets, loaded.targets))
        ]
        return sum(
            tensor.nbytes for array, tensor in pairs if tensor.data_ptr() != array.ctypes.data
        )

    def inputs(self, array: Array) -> torch.Tensor:
        """Return inputs on the device, as the model takes them."""
        return upload(_tensor(array, self._model.input_kind), self._device, "samples")


def _tensor(array: Array, kind: type[np.generic]) -> torch.Tensor:
    """Return an array as a tensor of the host; they share memory where they can."""
    array = np.asarray(array, dtype=kind, order="C")
    if not array.flags.writeable:
        array = array.copy()
    return torch.from_numpy(array)


def check_inputs(inputs: Array, model: Model) -> None:
    """Check that every input has the shape that the model takes, and holds numbers only.

    Tokens may come as whole floats too, but only those that the model knows.

    Raises:
        DataError: it does not.
    """
    if tuple(inputs.shape[1:]) != model.shape:
        raise DataError(
            f"One sample has shape {tuple(inputs.shape[1:])}, but the model takes {model.shape}.",
            code="data.shape",
            hint="prepare this device's data for the recipe's model",
        )
    if inputs.dtype == np.uint8 or scaled_images(inputs) is not None:
        return
    if not np.isfinite(inputs).all():
        raise DataError(
            "Some inputs are not numbers (NaN or infinite).",
            code="data.not_finite",
            hint="remove or repair those samples",
        )
    # A GPU that looks up a token beyond the table cannot be used any more by this process.
    if model.vocabulary is not None and inputs.size:
        whole = inputs.dtype.kind in "iu" or bool((inputs == np.floor(inputs)).all())
        if not (whole and 0 <= inputs.min() <= inputs.max() < model.vocabulary):
            raise DataError(
                f"Inputs must be token numbers from 0 to {model.vocabulary - 1}.",
                code="data.tokens",
                hint="number the tokens from 0, or set the model's vocabulary to their number",
            )


def check_samples(samples: Samples, model: Model) -> None:
    """Check that a model can be trained on ``samples``.

    Raises:
        DataError: it cannot, and why.
    """
    check_inputs(samples.inputs, model)
    targets, classes = samples.targets, model.classes
    if len(samples.inputs) != len(targets):
        raise DataError(
            f"There are {len(samples.inputs)} inputs but {len(targets)} targets.",
            code="data.targets",
            hint="provide one target for every input",
        )
    if targets.dtype.kind == "f":
        wanted, given = (len(targets), classes), targets.shape
        if given != wanted or not np.isfinite(targets).all():
            raise DataError(
                f"Soft targets must be finite numbers of shape {wanted}, not {given}.",
                code="data.targets",
                hint="provide one number for each sample and class",
            )
        return
    if targets.dtype.kind not in "iu" or targets.ndim != 1:
        raise DataError(
            f"Labels must be one integer per sample, not {targets.dtype} of {targets.shape}.",
            code="data.targets",
            hint="use the labels 0, 1, 2, …",
        )
    if len(targets) and not 0 <= int(targets.min()) <= int(targets.max()) < classes:
        raise DataError(
            f"Labels range from {targets.min()} to {targets.max()},"
            f" but the model has 0 to {classes - 1}.",
            code="data.labels",
            hint="check the labels, or the number of classes of the run",
        )


def channels_last(inputs: torch.Tensor) -> torch.Tensor:
    """Return images in the memory order in which a CPU's convolutions and poolings are fastest.

    The values are the same. On a GPU the order is left alone.
    """
    if inputs.dim() != 4 or inputs.device.type != "cpu":
        return inputs
    # ``contiguous`` would hand one-channel images back in strides that convolutions do not take.
    return inputs.to(memory_format=torch.channels_last)

"""The batches of a job: samples by their numbers, augmented as the job says."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from edgefed.errors import DataError
from edgefed.learn.base.augment import Augment, AugmentationDraws, augmented, draw
from edgefed.learn.base.image_transforms import ImageTransforms, transformed
from edgefed.learn.base.transfers import upload_all
from edgefed.learn.base.types import Batch, Job
from edgefed.learn.samples.sample_cache import CachedSamples, channels_last
from edgefed.seeds import derive


class JobBatches:
    """Yields a job's batches in the requested order.

    Args:
        job: the job; the draws of its augmentation derive from its seed.
        data: the job's samples on the training device, accepted by ``check_pixels``.
    """

    def __init__(self, job: Job, data: CachedSamples) -> None:
        self._job = job
        self._data = data
        self._chance = torch.Generator().manual_seed(derive(job.seed, "augment"))

    def places(self, rows: torch.Tensor) -> list[torch.Tensor]:
        """Return the next batch's tensors for the device: its samples' numbers, and crops.

        Args:
            rows: the numbers (batch,), on the host.
        """
        augment = self._job.augment
        if augment is None or not (augment.padding or augment.flip):
            return [rows]
        draws = draw(augment, len(rows), self._chance)
        return [rows, draws.rows, draws.columns, draws.flips.long()]

    def get(self, rows: torch.Tensor, epoch: int) -> Batch:
        """Return the samples of some numbers ``rows`` (batch,), on the host, in an epoch from 0."""
        places = upload_all(self.places(rows), self._data.targets.device, "plan")
        return self.made(places, rows, epoch)

    def made(self, places: Sequence[torch.Tensor], rows: torch.Tensor, epoch: int) -> Batch:
        """Return a batch.

        Args:
            places: of the batch, on the device.
            rows: numbers of its samples, on the host.
            epoch: from 0.
        """
        augment, (index, *crops) = self._job.augment, places
        batch = self._data.unscaled(index, rows)
        if augment is None:
            return self._data.scaled(batch)
        inputs = self._moved(augment, batch.inputs, crops)
        if augment.transforms is None:
            return self._data.scaled(Batch(channels_last(inputs), batch.targets, batch.rows))
        inputs = self._transformed(augment.transforms, inputs, rows, epoch)
        return Batch(channels_last(inputs), batch.targets, batch.rows)

    def _moved(
        self, augment: Augment, inputs: torch.Tensor, crops: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """Return a batch's inputs, or its uint8 images, cropped and mirrored."""
        if not crops:
            return inputs
        data = self._data
        neutral = data.scaling.neutral if data.images and data.scaling else None
        return cropped(augment, inputs, crops, neutral)

    def _transformed(
        self, transforms: ImageTransforms, inputs: torch.Tensor, rows: torch.Tensor, epoch: int
    ) -> torch.Tensor:
        """Return a batch's inputs after torchvision's transforms; each image has its own seed."""
        data, scaling = self._data, self._data.scaling
        assert scaling is not None, "check_pixels refuses what are not images"
        images = scaling.pixels(inputs) if data.images is None else inputs
        seeds = [derive(self._job.seed, "image", epoch, row) for row in rows.tolist()]
        return scaling.inputs(transformed(transforms, images, seeds, scaling.neutral))


def cropped(
    augment: Augment,
    inputs: torch.Tensor,
    crops: Sequence[torch.Tensor],
    neutral: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return images cropped and mirrored by the tensors of ``JobBatches.places``."""
    down, across, flips = (part.reshape(-1) for part in crops)
    return augmented(augment, inputs, AugmentationDraws(down, across, flips.bool()), neutral)


def check_pixels(job: Job, data: CachedSamples) -> None:
    """Check that a job's samples are images, or can be taken back to them, if it needs them.

    Raises:
        DataError: ``augment.pixels``: torchvision's transforms are wanted, and they are neither.
    """
    wanted = job.augment is not None and job.augment.transforms is not None
    if wanted and not data.has_pixels:
        raise DataError(
            "Augmentation needs pixels from 0 to 1, but these inputs are others.",
            code="augment.pixels",
            hint="give the device its images as they are, and mean and std in [images]",
        )

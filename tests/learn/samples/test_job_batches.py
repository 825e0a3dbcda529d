"""The batches of a job: the same for uint8 and float images, and in every trainer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from edgefed.errors import DataError
from edgefed.files.samples import UNSCALED, PixelScale
from edgefed.learn.base.augment import Augment
from edgefed.learn.base.image_transforms import ImageTransforms
from edgefed.learn.base.types import (
    Array,
    Batch,
    Context,
    Forward,
    Job,
    Objective,
    Params,
    Samples,
    Schedule,
    Trained,
)
from edgefed.learn.modeling.model import Model
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.samples.job_batches import JobBatches, check_pixels
from edgefed.learn.samples.sample_cache import SampleCache
from edgefed.learn.training.stacked_trainer import StackedTrainer
from edgefed.learn.training.trainer import Trainer

SHAPE, CLASSES = (3, 9, 7), 2
SCALE = PixelScale((0.5, 0.4, 0.3), (0.2, 0.25, 0.3))
TRANSFORMS = ImageTransforms(
    resized_crop=0.3, flip=True, rand_augment=1, brightness=0.4, hue=0.1, erase=0.5
)
AUGMENTS = {
    "torchvision's": Augment(transforms=TRANSFORMS),
    "zeros": Augment(2, "zeros", flip=True),
    "reflected": Augment(2, "reflect"),
    "both": Augment(2, "zeros", flip=True, transforms=TRANSFORMS),
}


def model() -> Model:
    return Model(nn.Sequential(nn.Flatten(), nn.Linear(189, CLASSES)), SHAPE, CLASSES)


def images(count: int = 12, seed: int = 0, scale: PixelScale = SCALE) -> Samples:
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (count, *SHAPE), dtype=np.uint8)
    return Samples(pixels, rng.integers(0, CLASSES, count), scale=scale)


def as_floats(samples: Samples) -> Samples:
    return replace(samples, inputs=samples.float_inputs())


def job(augment: Augment | None, seed: int = 5, objective: Objective | None = None) -> Job:
    return Job(model().weights(), objective or CrossEntropy(), Schedule(), seed, augment=augment)


def batches(job: Job, samples: Samples) -> JobBatches:
    return JobBatches(job, SampleCache(model(), torch.device("cpu")).get(samples))


def got(job: Job, samples: Samples, *rows: int, epoch: int = 0) -> torch.Tensor:
    """Return the inputs of a job's first batch."""
    return batches(job, samples).get(torch.tensor(rows), epoch).inputs


@pytest.mark.parametrize("scale", [SCALE, UNSCALED, PixelScale((0.3,), (0.5,))])
@pytest.mark.parametrize("name", AUGMENTS)
def test_float_images_become_what_uint8_images_become(name: str, scale: PixelScale) -> None:
    whole, rows = images(scale=scale), range(12)
    stored = got(job(AUGMENTS[name]), whole, *rows)
    floats = got(job(AUGMENTS[name]), as_floats(whole), *rows)
    assert stored.dtype == floats.dtype == torch.float32
    # ``zeros`` are the mean of inputs, and the nearest pixel to it where images are uint8.
    near = 0.51 / 255 / min(scale.std, default=1.0) if "zeros" in AUGMENTS[name].fill else 0
    if AUGMENTS[name].transforms is None:
        assert torch.allclose(stored, floats, atol=near + 1e-6)
    else:
        assert torch.equal(stored, floats)
    plain = torch.from_numpy(whole.float_inputs())
    assert not torch.equal(stored, plain)


def test_targets_and_rows_stay_with_their_images() -> None:
    whole = images()
    batch = batches(job(AUGMENTS["both"]), whole).get(torch.tensor([7, 2]), 0)
    assert batch.rows.tolist() == [7, 2]
    assert batch.targets.tolist() == whole.targets[[7, 2]].tolist()


@given(rows=st.lists(st.integers(0, 11), min_size=1, max_size=12, unique=True))
@settings(max_examples=20, deadline=None)
def test_an_image_is_the_same_in_any_batch_of_an_epoch(rows: list[int]) -> None:
    augmenting, whole = job(AUGMENTS["torchvision's"]), images()
    alone = [got(augmenting, whole, row)[0] for row in rows]
    assert torch.equal(got(augmenting, whole, *rows), torch.stack(alone))


def test_epochs_samples_and_seeds_draw_otherwise() -> None:
    one = images(1)
    same = replace(one, inputs=one.inputs.repeat(2, axis=0), targets=one.targets.repeat(2))
    augment = AUGMENTS["torchvision's"]
    first, second = got(job(augment), same, 0, 1)
    assert not torch.equal(first, second)
    assert not torch.equal(first, got(job(augment), same, 0, epoch=1)[0])
    assert not torch.equal(first, got(job(augment, seed=6), same, 0)[0])
    assert torch.equal(first, got(job(augment), same, 0)[0])


# -- the trainers ---------------------------------------------------------------------------------


def telling(forward: Forward, params: Params, batch: Batch, context: Context) -> torch.Tensor:
    """Return a loss whose gradient in a weight is the batch's input."""
    return (params["1.weight"][0] * batch.inputs.flatten(1)).sum()


def seen(trained: Trained) -> Array:
    """Return the sum of the inputs that training saw, batch by batch."""
    total: Array = -trained.weights["1.weight"][0]
    return total


def telling_jobs(augment: Augment | None, count: int, epochs: int) -> list[Job]:
    """Return jobs whose weights become the sum of the inputs, one sample after another."""
    start = {name: np.zeros_like(array) for name, array in model().weights().items()}
    schedule = Schedule(epochs, batch_size=1, learning_rate=1.0)
    return [Job(start, telling, schedule, seed, augment=augment) for seed in range(count)]


@pytest.mark.parametrize("name", ["torchvision's", "zeros", "none"])
def test_a_stack_sees_the_bits_that_clients_see_one_after_another(name: str) -> None:
    work = telling_jobs(AUGMENTS.get(name), count=3, epochs=2)
    data = [images(size, seed) for seed, size in enumerate((3, 1, 2))]
    together = StackedTrainer(model(), "cpu").train(work, data)
    alone = [Trainer(model(), "cpu").train(*each) for each in zip(work, data, strict=True)]
    for one, other in zip(together, alone, strict=True):
        assert np.array_equal(seen(one), seen(other))
    one_batch = got(work[1], data[1], 0), got(work[1], data[1], 0, epoch=1)
    if name == "torchvision's":
        expected = (one_batch[0] + one_batch[1]).flatten().numpy()
        assert np.array_equal(seen(together[1]), expected), "epochs count from 0 in both"


def test_a_stack_may_hold_clients_with_uint8_and_with_float_images() -> None:
    work = telling_jobs(AUGMENTS["torchvision's"], count=2, epochs=1)
    data = [images(2, 1), as_floats(images(2, 2))]
    together = StackedTrainer(model(), "cpu").train(work, data)
    other = StackedTrainer(model(), "cpu").train(work, [as_floats(data[0]), images(2, 2)])
    for one, two in zip(together, other, strict=True):
        assert np.array_equal(seen(one), seen(two))


def test_draws_do_not_depend_on_dropout_nor_change_it() -> None:
    """A job without augmentation drops the same units as one whose augmentation does nothing."""
    layers = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(189, CLASSES))
    dropping = Model(layers, SHAPE, CLASSES)
    whole = replace(images(6), inputs=np.full((6, *SHAPE), 90, np.uint8))
    flips = Augment(transforms=ImageTransforms(resized_crop=0.5, flip=True))
    plain = Job(dropping.weights(), CrossEntropy(), Schedule(batch_size=2), 5)
    results = [
        Trainer(dropping, "cpu").train(replace(plain, augment=augment), whole).weights
        for augment in (None, flips)
    ]
    assert all(np.array_equal(results[0][name], results[1][name]) for name in results[0])


# -- inputs that are not pixels -------------------------------------------------------------------


def unknown_scale() -> Samples:
    """Return images that somebody normalised, and did not say how."""
    return replace(as_floats(images()), scale=UNSCALED)


def test_normalised_images_of_unknown_scale_are_refused_by_both_trainers() -> None:
    augmenting = job(AUGMENTS["torchvision's"])
    with pytest.raises(DataError, match="pixels from 0 to 1") as caught:
        Trainer(model(), "cpu").train(augmenting, unknown_scale())
    assert caught.value.code == "augment.pixels"
    first, second = StackedTrainer(model(), "cpu").attempt(
        [augmenting, augmenting], [unknown_scale(), as_floats(images())]
    )
    assert isinstance(first, DataError) and first.code == "augment.pixels"
    assert isinstance(second, Trained), "the other client trains"


def test_they_may_be_cropped_and_flipped_as_ever() -> None:
    Trainer(model(), "cpu").train(job(AUGMENTS["zeros"]), unknown_scale())
    Trainer(model(), "cpu").train(job(None), unknown_scale())


def test_pixels_with_some_noise_are_still_pixels() -> None:
    whole = as_floats(images(scale=UNSCALED))
    noise = np.random.default_rng(1).laplace(0, 16 / 255, whole.inputs.shape)
    noisy = replace(whole, inputs=(whole.inputs + noise).astype(np.float32))
    data = SampleCache(model(), torch.device("cpu")).get(noisy)
    check_pixels(job(AUGMENTS["torchvision's"]), data)
    assert data.has_pixels

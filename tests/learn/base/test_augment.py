"""Crops and flips, on images small enough to write down."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch

from edgefed.errors import DataError
from edgefed.learn.base.augment import (
    LARGE,
    Augment,
    AugmentationDraws,
    augmented,
    check_augment,
    draw,
)
from edgefed.learn.base.types import Batch, Context, Forward, Job, Params, Samples, Schedule
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.training.trainer import Trainer
from tests.learn import worlds

IMAGE = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])


def once(augment: Augment, row: int, column: int, *, flip: bool = False) -> list[list[float]]:
    """Return the image after a crop at a place of the padded one."""
    draws = AugmentationDraws(torch.tensor([row]), torch.tensor([column]), torch.tensor([flip]))
    image: list[list[float]] = augmented(augment, IMAGE, draws)[0, 0].tolist()
    return image


def test_a_crop_moves_the_image_and_fills_with_zeros() -> None:
    crop = Augment(padding=1)
    assert once(crop, 1, 1) == [[1, 2], [3, 4]]
    assert once(crop, 0, 0) == [[0, 0], [0, 1]]
    assert once(crop, 2, 1) == [[3, 4], [0, 0]]
    assert once(crop, 1, 2) == [[2, 0], [4, 0]]


def test_a_crop_can_fill_with_the_image_reflected() -> None:
    crop = Augment(padding=1, fill="reflect")
    assert once(crop, 0, 0) == [[4, 3], [2, 1]]
    assert once(crop, 1, 2) == [[2, 1], [4, 3]]


def test_a_flip_mirrors_left_to_right_after_the_crop() -> None:
    assert once(Augment(flip=True), 0, 0, flip=True) == [[2, 1], [4, 3]]
    assert once(Augment(padding=1, flip=True), 2, 2, flip=True) == [[0, 4], [0, 0]]


def test_each_image_has_its_own_draws_and_all_of_its_channels_move_together() -> None:
    images = torch.arange(24.0).reshape(2, 3, 2, 2)
    draws = AugmentationDraws(
        torch.tensor([1, 2]), torch.tensor([1, 1]), torch.tensor([True, False])
    )
    after = augmented(Augment(padding=1, flip=True), images, draws)
    assert torch.equal(after[0], images[0].flip(-1))
    assert torch.equal(after[1, :, 0], images[1, :, 1])
    assert not after[1, :, 1].any()


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("kind", [torch.uint8, torch.float32])
@pytest.mark.parametrize("fill", ["zeros", "reflect"])
def test_large_images_move_as_small_ones_do(
    fill: Literal["zeros", "reflect"], kind: torch.dtype, last: bool
) -> None:
    """A CPU cuts images of three channels one by one, and gathers one channel of them at once."""
    augment, generator = Augment(3, fill, flip=True), torch.Generator().manual_seed(1)
    images = torch.randint(1, 256, (6, 3, 80, 70), generator=generator).to(kind)
    images = images.contiguous(memory_format=torch.channels_last) if last else images
    assert images[0].numel() >= LARGE > images[0, 0].numel()
    draws, neutral = draw(augment, 6, generator), torch.tensor([7, 8, 9]).reshape(3, 1, 1).to(kind)
    assert 0 < int(draws.flips.sum()) < 6
    whole = augmented(augment, images, draws, neutral)
    parts = [augmented(augment, images[:, k : k + 1], draws, neutral[k : k + 1]) for k in range(3)]
    assert torch.equal(whole, torch.cat(parts, dim=1))
    assert whole.dtype == kind


def test_draws_reach_every_place_and_are_the_seeds() -> None:
    def drawn(seed: int, augment: Augment) -> AugmentationDraws:
        return draw(augment, 400, torch.Generator().manual_seed(seed))

    both = Augment(padding=2, flip=True)
    first, again, other = drawn(1, both), drawn(1, both), drawn(2, both)
    assert set(first.rows.tolist()) == set(first.columns.tolist()) == {0, 1, 2, 3, 4}
    assert 150 < int(first.flips.sum()) < 250
    assert torch.equal(first.rows, again.rows)
    assert torch.equal(first.flips, again.flips)
    assert not torch.equal(first.rows, other.rows)
    unflipped = drawn(1, replace(both, flip=False))
    assert torch.equal(unflipped.columns, first.columns)
    assert not unflipped.flips.any()


@pytest.mark.parametrize(
    ("augment", "shape", "code"),
    [
        (Augment(flip=True), (64,), "augment.input"),
        (Augment(padding=-1), (1, 8, 8), "augment.padding"),
        (Augment(padding=9), (1, 8, 8), "augment.padding"),
        (Augment(padding=8, fill="reflect"), (1, 8, 8), "augment.padding"),
    ],
)
def test_what_cannot_be_augmented_is_a_clear_error(
    augment: Augment, shape: tuple[int, ...], code: str
) -> None:
    with pytest.raises(DataError) as caught:
        check_augment(augment, shape)
    assert caught.value.code == code


def seen(
    augment: Augment | None, seed: int = 5, *, count: int = 7, epochs: int = 1
) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    """Return the inputs that the objective saw, in batches of four."""
    batches: list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]] = []

    def objective(forward: Forward, params: Params, batch: Batch, context: Context) -> torch.Tensor:
        batches.append(batch.inputs.numpy().copy())
        return CrossEntropy()(forward, params, batch, context)

    model = worlds.model("cnn")
    job = Job(model.weights(), objective, Schedule(epochs, 4), seed, augment=augment)
    Trainer(model, "cpu").train(job, worlds.samples(count))
    return batches


def test_a_job_augments_its_batches_under_its_seed_and_nothing_else() -> None:
    plain, moved, again = seen(None), seen(Augment(2, flip=True)), seen(Augment(2, flip=True))
    assert [len(batch) for batch in moved] == [4, 3]
    assert all(np.array_equal(one, two) for one, two in zip(moved, again, strict=True))
    assert not np.array_equal(plain[0], moved[0])
    still = seen(Augment())
    assert all(np.array_equal(one, two) for one, two in zip(plain, still, strict=True))


def test_another_seed_augments_otherwise_whatever_the_order_of_samples() -> None:
    """One sample has no order that a shuffle could change."""
    one, again, other = (
        np.stack(seen(Augment(2, flip=True), seed=seed, count=1, epochs=9)) for seed in (5, 5, 6)
    )
    assert len(one) == 9 and len(np.unique(one, axis=0)) > 1
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_augmenting_leaves_the_samples_as_they_are() -> None:
    model, data = worlds.model("cnn"), worlds.samples(7)
    before = data.inputs.copy()
    job = replace(worlds.job(model), augment=Augment(2, flip=True))
    trainer = Trainer(model, "cpu")
    first = trainer.train(job, data).weights
    again = trainer.train(job, Samples(before.copy(), data.targets)).weights
    assert np.array_equal(data.inputs, before)
    assert all(np.array_equal(first[name], again[name]) for name in first)


def test_a_job_that_cannot_be_augmented_is_a_clear_error() -> None:
    model = worlds.model("cnn")
    job = replace(worlds.job(model), augment=Augment(padding=9))
    with pytest.raises(DataError, match="padded by 9"):
        Trainer(model, "cpu").train(job, worlds.samples(7))

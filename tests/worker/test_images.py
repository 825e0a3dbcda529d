"""A worker gives its images the mean and deviation of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefed.config.recipes.recipe import ModelSection
from edgefed.data.base.preparation import normalized
from edgefed.data.base.types import UNPREPARED, Preparation
from edgefed.data.devices.sources import load_device
from edgefed.files.samples import stored
from edgefed.learn.base.types import Samples, Tensors
from edgefed.learn.modeling.model_building import build
from edgefed.wire.messages import BlobRef, Task
from edgefed.wire.tensors import digest, pack
from edgefed.worker.outcomes import Outcome
from edgefed.worker.trainer_cache import TrainerCache
from edgefed.worker.worker import Worker, read_blob
from tests.data.images.test_image_cache import photos
from tests.worker.tasks import task

MODEL = {"name": "mlp", "hidden": [4]}
SHAPE = (3, 8, 8)
SCALE = Preparation((0.4, 0.5, 0.6), (0.2, 0.25, 0.3))
IMAGES = {"mean": SCALE.mean, "std": SCALE.std}
PACKED = pack(build(ModelSection.model_validate(MODEL), SHAPE, 3, 3).weights())


def asked(**changes: Any) -> Task:
    blobs = {"weights": BlobRef(digest=digest(PACKED), size=len(PACKED))}
    return task(model=MODEL, shape=SHAPE, classes=3, blobs=blobs, **changes)


def read(role: str) -> Tensors:
    return read_blob(PACKED)


def images(count: int, seed: int) -> Samples:
    rng = np.random.default_rng(seed)
    return Samples(rng.integers(0, 256, (count, *SHAPE), np.uint8), rng.integers(0, 3, count))


def floats(samples: Samples) -> Samples:
    return Samples(samples.float_inputs(), samples.targets)


def worker(train: Samples, test: Samples, preparation: Preparation = UNPREPARED) -> Worker:
    return Worker(TrainerCache("cpu"), train, test, preparation=preparation)


def trained(whom: Worker, **changes: Any) -> Outcome:
    outcome = whom.work(asked(**changes), read, {})
    assert outcome.status == "ok", outcome.reason
    return outcome


TRAIN, TEST = images(9, 1), images(5, 2)


def test_bytes_floats_and_what_is_scaled_already_train_alike() -> None:
    given = [
        worker(TRAIN, TEST),
        worker(floats(TRAIN), floats(TEST)),
        worker(normalized(TRAIN, SCALE), normalized(TEST, SCALE), SCALE),
        worker(normalized(floats(TRAIN), SCALE), normalized(floats(TEST), SCALE), SCALE),
    ]
    outcomes = [trained(each, images=IMAGES) for each in given]
    assert len({repr(each.blobs) for each in outcomes}) == 1
    scores = [trained(each, images=IMAGES, question="evaluate").metrics for each in given]
    assert scores[1:] == scores[:-1]
    plain = trained(given[0])
    assert plain.blobs != outcomes[0].blobs
    assert plain.blobs == trained(given[1]).blobs, "and the next run may scale otherwise"
    assert trained(given[0], images=IMAGES).blobs == outcomes[0].blobs


def test_floats_are_scaled_once_for_all_tasks_of_a_run() -> None:
    whom = worker(floats(TRAIN), floats(TEST))
    begun = [whom.begin(asked(images=IMAGES, index=index), read, {}) for index in (4, 5)]
    first, second = (each.view for each in begun if not isinstance(each, Outcome))
    assert first.train is second.train
    assert first.preparation.mean == SCALE.mean


def test_a_device_that_scaled_its_images_otherwise_is_refused() -> None:
    other = Preparation((0.1,), (0.2,))
    whom = worker(normalized(TRAIN, other), normalized(TEST, other), other)
    outcome = whom.work(asked(images=IMAGES), read, {})
    assert outcome.status == "refused"
    assert outcome.reason == (
        "it scaled its images by mean 0.1 and std 0.2, and the run by mean 0.4, 0.5, 0.6 and std"
        " 0.2, 0.25, 0.3  [images.scale]; try: leave out normalize, mean and std of the device's"
        " source"
    )
    assert trained(whom).samples == 9, "a run that says nothing takes it as before"


def test_a_mean_of_other_channels_is_refused() -> None:
    outcome = worker(TRAIN, TEST).work(asked(images={"mean": [0, 0], "std": [1, 1]}), read, {})
    assert (outcome.status, outcome.reason) == (
        "refused",
        "it has images of 3 channels, and the run scales 2  [images.scale]; try: leave out"
        " normalize, mean and std of the device's source",
    )


def test_floats_that_are_no_pixels_stay_as_their_owner_has_prepared_them() -> None:
    own = floats(TRAIN)
    own.inputs[0] = -2
    whom = worker(own, floats(TEST))
    assert trained(whom, images=IMAGES).blobs == trained(whom).blobs


def test_what_is_no_image_stays_as_it_is() -> None:
    rows = Samples(TRAIN.float_inputs().reshape(9, -1), TRAIN.targets)
    packed = pack(build(ModelSection.model_validate(MODEL), (192,), 3, 3).weights())
    given = task(
        model=MODEL,
        shape=(192,),
        classes=3,
        images=IMAGES,
        blobs={"weights": BlobRef(digest=digest(packed), size=len(packed))},
    )
    begun = worker(rows, rows).begin(given, lambda role: read_blob(packed), {})
    assert not isinstance(begun, Outcome)
    assert begun.view.train is rows


@pytest.mark.parametrize("grey", [False, True])
def test_a_folder_of_the_other_kind_of_images_is_refused(tmp_path: Path, grey: bool) -> None:
    source = f"folder:{photos(tmp_path / 'photos', side=8)}?greyscale={grey}"
    found = load_device(source, 0.0, tmp_path)
    outcome = worker(found.train, found.test).work(asked(images=IMAGES), read, {})
    if grey:
        assert outcome.status == "refused"
        assert outcome.reason == "its inputs are 1x8x8, the run trains 3x8x8"
    else:
        assert outcome.status == "ok"


def test_a_device_whose_decoded_images_are_cut_fails_its_task_and_says_why(tmp_path: Path) -> None:
    found = load_device(f"folder:{photos(tmp_path / 'photos', side=8)}", 0.0, tmp_path)
    held = stored(found.train.inputs)
    assert held is not None
    with held.file.path.open("r+b") as file:
        file.truncate(100)
    outcome = worker(found.train, found.test).work(asked(), read, {})
    assert outcome.status == "failed"
    assert "is shorter than when it was opened" in outcome.reason
    assert f"[data.cut_short]; try: delete {held.file.path.parent}" in outcome.reason

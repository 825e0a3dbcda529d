"""A folder of images trains to the same bits as the same pixels in an NPZ file of floats."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors import safe_open

from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.models.augmentation import with_augmentation
from edgefed.coordinator.models.run_model import load_dataset
from edgefed.data.base.types import UNPREPARED, Preparation
from edgefed.data.devices.partition import deal_recipe
from edgefed.data.devices.shard_files import read_shard, write_shard
from edgefed.errors import RecipeError
from edgefed.files.samples import stored
from edgefed.learn.networks.torchvision_classifiers import IMAGENET
from edgefed.simulator.run import SimulationResult
from tests.simulator.work import finished

CLASSES, SIDE = 3, 12
NORMALISED = {"normalize": True, "mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.25]}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write 20 photos of each class, and the same pixels as floats with the same test part."""
    folder, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(3)
    for label in range(CLASSES):
        for number in range(20):
            pixels = rng.integers(0, 256, (SIDE, SIDE, 3), np.uint8)
            pixels[..., label] //= 2
            path = folder / "photos" / str(label) / f"{number:02d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    return folder


def recipe(data: dict[str, Any], **sections: Any) -> Recipe:
    simulation = {"devices": 4, "workers": 1, "holdout": 0.2, **sections.pop("simulation", {})}
    return Recipe.model_validate(
        {
            "seed": 3,
            "model": {"name": "cnn"},
            "data": {"partition": "iid", **data},
            "training": {"batch_size": 5},
            "rounds": {"count": 2},
            "evaluation": {"on": "both"},
            "simulation": simulation,
            **sections,
        }
    )


def folder_of(photos: Path, **data: Any) -> dict[str, Any]:
    return {"name": "folder", "path": str(photos / "photos"), **data}


def floats_of(photos: Path, **data: Any) -> dict[str, Any]:
    """Return an NPZ file of the folder's inputs, as floats, in place of the folder."""
    grey = {key: data[key] for key in ("greyscale",) if key in data}
    whole = load_dataset(recipe(folder_of(photos, **grey)), photos / "floats")
    path = photos / "floats.npz"
    np.savez(
        path,
        x_train=whole.train.float_inputs(),
        y_train=whole.train.targets,
        x_test=whole.test.float_inputs(),
        y_test=whole.test.targets,
    )
    rest = {key: value for key, value in data.items() if key not in grey}
    return {"name": "npz", "path": str(path), **rest}


def run(folder: Path, chosen: Recipe) -> SimulationResult:
    return finished(chosen, folder, folder / "data")


def scores(result: SimulationResult) -> list[Any]:
    with (result.folder / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [[row[key] for key in row if "loss" in key or "accuracy" in key] for row in rows]


@pytest.mark.parametrize(
    ("data", "sections"),
    [
        ({"greyscale": True}, {}),
        (NORMALISED, {"training": {"batch_size": 5, "crop": 2, "flip": True}}),
        (NORMALISED, {"images": {"flip": True, "resized_crop": 0.5}}),
        ({}, {"algorithm": {"name": "fedmix", "group_size": 3}}),
        (NORMALISED, {"simulation": {"engine": "stacked"}}),
        ({"transform": "greyscale", "grey_shares": [0.5]}, {}),
        ({"parts_per_device": 2}, {}),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_the_digest_is_that_of_the_same_floats(
    photos: Path, data: dict[str, Any], sections: dict[str, Any]
) -> None:
    mine = run(photos / "a", recipe(folder_of(photos, **data), **sections))
    floats = run(photos / "b", recipe(floats_of(photos, **data), **sections))
    assert mine.record.weights_digest == floats.record.weights_digest
    assert scores(mine) == scores(floats) != []


def test_the_samples_of_devices_stay_in_the_file(photos: Path) -> None:
    chosen = recipe(folder_of(photos, **NORMALISED, limit=30))
    dataset = load_dataset(chosen, photos / "data")
    shards = deal_recipe(dataset, chosen, 0.2)
    files = {
        id(images.file) if images is not None else None
        for samples in (dataset.train, dataset.test, *(part.train for part in shards))
        for images in (stored(samples.inputs),)
    }
    assert len(files) == 1 and None not in files


@pytest.mark.parametrize("data", [{}, NORMALISED])
def test_a_shard_of_photos_is_bytes_that_read_back_as_they_are_trained_on(
    photos: Path, data: dict[str, Any]
) -> None:
    chosen = recipe(folder_of(photos, **data))
    shard = deal_recipe(load_dataset(chosen, photos / "data"), chosen, 0.2)[1]
    write_shard(photos / "shard.npz", shard)
    with np.load(photos / "shard.npz") as arrays:
        assert arrays["x_train"].dtype == np.uint8
    again = read_shard(photos / "shard.npz")
    assert again.preparation == shard.preparation
    for mine, read in ((shard.train, again.train), (shard.test, again.test)):
        assert mine.float_inputs().tobytes() == read.inputs.tobytes()
        assert np.array_equal(mine.targets, read.targets)


# -- the run's mean and deviation -----------------------------------------------------------------


def metadata(result: SimulationResult) -> dict[str, str]:
    with safe_open(result.folder / "model.safetensors", "np") as file:
        return dict(file.metadata())


def test_the_recipes_scale_is_that_of_the_data_sets_own(photos: Path) -> None:
    images = {"mean": NORMALISED["mean"], "std": NORMALISED["std"]}
    stated = run(photos / "a", recipe(folder_of(photos), images=images))
    declared = run(photos / "b", recipe(folder_of(photos, **NORMALISED)))
    floats = run(photos / "c", recipe(floats_of(photos), images=images))
    plain = run(photos / "d", recipe(folder_of(photos)))
    digests = [each.record.weights_digest for each in (stated, declared, floats, plain)]
    assert digests[0] == digests[1] == digests[2] != digests[3]
    assert scores(stated) == scores(declared) == scores(floats) != []
    assert metadata(stated)["scale"] == metadata(declared)["scale"] != metadata(plain).get("scale")


def test_networks_of_torchvision_have_imagenets_scale_by_default(photos: Path) -> None:
    chosen = recipe(folder_of(photos), model={"name": "torchvision:mobilenet_v3_small"})
    dataset = load_dataset(chosen, photos / "data")
    assert dataset.train.scale == dataset.test.scale == IMAGENET
    told = with_augmentation(chosen, UNPREPARED).images
    assert (told.mean, told.std) == (IMAGENET.mean, IMAGENET.std)
    own = Preparation((0.5,), (0.25,))
    assert with_augmentation(chosen, own).images.mean == (0.5,)
    stated = chosen.model_copy(update={"images": chosen.images.model_copy(update={"mean": (0.1,)})})
    assert with_augmentation(stated, UNPREPARED).images.mean == (0.1,)
    assert with_augmentation(recipe(folder_of(photos)), UNPREPARED).images.mean == ()


@pytest.mark.parametrize(
    ("images", "data", "message"),
    [
        ({"mean": [0.1], "std": [0.2]}, NORMALISED, "scaled its images by mean 0.4, 0.5, 0.6"),
        ({"mean": [0.1] * 2, "std": [0.2] * 2}, {}, "has images of 3 channels"),
    ],
)
def test_a_data_set_that_is_scaled_otherwise_is_refused(
    photos: Path, images: dict[str, Any], data: dict[str, Any], message: str
) -> None:
    with pytest.raises(RecipeError, match=message) as raised:
        load_dataset(recipe(folder_of(photos, **data), images=images), photos / "data")
    assert raised.value.code == "recipe.images"

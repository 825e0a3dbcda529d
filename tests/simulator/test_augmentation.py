"""Crops and flips that a data set declares, or a recipe asks for, reach every device's training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.averaging.training import augment_of
from edgefed.config.recipes.images_section import ImagesSection
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.recipes.training_section import TrainingSection
from edgefed.coordinator.models.augmentation import with_augmentation
from edgefed.data.base.preparation import stored_preparation
from edgefed.data.base.types import UNPREPARED, Preparation
from edgefed.errors import DataError
from edgefed.files.samples import Samples
from edgefed.learn.base.augment import Augment
from edgefed.learn.base.image_transforms import ImageTransforms
from edgefed.simulator.run import Simulation
from tests.coordinator.fleets import TamperedFleet
from tests.run_fixture import Ticking, World, recipe, samples
from tests.simulator.work import finished, write_samples

DECLARED = Preparation(crop=2, crop_fill="reflect", flip=True)


def images(path: Path, declared: Preparation = UNPREPARED, shape: Any = (1, 8, 8)) -> Path:
    train, test = (
        Samples(pixels(each.inputs), each.targets)
        for each in (samples(40, 1, shape), samples(12, 2, shape))
    )
    return write_samples(path, train, test, preparation=stored_preparation(declared))


def pixels(inputs: np.ndarray[Any, np.dtype[np.float32]]) -> np.ndarray[Any, Any]:
    return np.asarray(1 / (1 + np.exp(-inputs)))


def plan(
    path: Path,
    training: dict[str, Any] | None = None,
    images: dict[str, Any] | None = None,
    **data: Any,
) -> Recipe:
    return Recipe.model_validate(
        {
            "seed": 3,
            "model": {"name": "cnn"},
            "data": {"name": "npz", "path": str(path), "partition": "iid", **data},
            "training": {"batch_size": 5, **(training or {})},
            "images": images or {},
            "rounds": {"count": 2},
            "simulation": {"devices": 3, "workers": 1},
        }
    )


def digest(folder: Path, chosen: Recipe) -> str:
    return finished(chosen, folder).record.weights_digest


# -- what counts ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("training", "declared", "expected"),
    [
        ({}, UNPREPARED, None),
        ({}, DECLARED, Augment(2, "reflect", True)),
        ({"crop": 3}, UNPREPARED, Augment(3, "reflect", False)),
        ({"crop": 3, "crop_fill": "zeros"}, DECLARED, Augment(3, "zeros", True)),
        ({"crop": 0}, DECLARED, Augment(0, "reflect", True)),
        ({"flip": False}, DECLARED, Augment(2, "reflect", False)),
        ({"crop": 0, "flip": False}, DECLARED, None),
        ({"crop_fill": "zeros"}, DECLARED, Augment(2, "zeros", True)),
        ({"flip": True}, Preparation(crop=4, crop_fill="zeros"), Augment(4, "zeros", True)),
    ],
)
def test_what_a_recipe_leaves_out_its_data_set_declares(
    training: dict[str, Any], declared: Preparation, expected: Augment | None
) -> None:
    told = with_augmentation(recipe(training=training), declared)
    assert augment_of(told.training, told.images) == expected
    if expected is None:
        assert told.training.model_dump(exclude_defaults=True) == {}, "tasks carry nothing"


@pytest.mark.parametrize(
    "sections", [{"training": {"crop": 1, "flip": True}}, {"images": {"resized_crop": 0.5}}]
)
def test_a_fleet_whose_inputs_are_no_images_is_asked_nothing(
    sections: dict[str, Any], tmp_path: Path
) -> None:
    here = World(tmp_path, recipe(**sections))
    fleet = TamperedFleet(here.devices)
    here.engine(fleet).run()
    assert (here.record.status, here.record.error) == ("failed", "augment.input")
    assert fleet.asked == []
    here.close()


# -- whole runs -----------------------------------------------------------------------------------


def test_augmentation_changes_the_result_and_repeats(tmp_path: Path) -> None:
    augmented: dict[str, Any] = {"crop": 1}
    path = images(tmp_path / "data.npz")
    plain = digest(tmp_path / "plain", plan(path))
    first = digest(tmp_path / "first", plan(path, augmented))
    assert first == digest(tmp_path / "again", plan(path, augmented))
    assert first != plain
    assert first == digest(tmp_path / "data", plan(path, **augmented)), "[data] declares the same"


@pytest.mark.parametrize(
    ("shape", "training", "transforms", "code", "told"),
    [
        ((6,), {"flip": True}, {}, "augment.input", "Only images .* not inputs of 6"),
        ((6,), {"crop": 1}, {}, "augment.input", "Only images"),
        (
            (1, 8, 8),
            {"crop": 8},
            {},
            "augment.padding",
            "8×8 pixels cannot be padded by 8",
        ),
        (
            (1, 8, 8),
            {"crop": 9, "crop_fill": "zeros"},
            {},
            "augment.padding",
            "cannot be padded by 9",
        ),
        ((6,), {}, {"flip": True}, "augment.input", "can be augmented, not inputs of 6"),
        ((6,), {}, {"rand_augment": 1}, "augment.input", "can be augmented"),
        ((2, 8, 8), {}, {"hue": 0.1}, "augment.colours", "images of 2 channels"),
    ],
)
def test_what_cannot_be_augmented_is_refused_before_anything_is_written(
    shape: tuple[int, ...],
    training: dict[str, Any],
    transforms: dict[str, Any],
    code: str,
    told: str,
    tmp_path: Path,
) -> None:
    path = images(tmp_path / "data.npz", shape=shape)
    chosen = plan(path, training, transforms).model_copy(update={"model": recipe().model})
    with pytest.raises(DataError, match=told) as caught:
        Simulation(chosen, tmp_path / "state", Ticking())
    assert caught.value.code == code
    assert caught.value.hint
    assert not (tmp_path / "state").exists()


# -- torchvision's transforms ---------------------------------------------------------------------

SOME: dict[str, Any] = {
    "resized_crop": 0.3,
    "flip": True,
    "brightness": 0.4,
    "rand_augment": 1,
    "erase": 0.5,
}


def test_what_a_data_set_declares_leaves_the_transforms_of_a_recipe_alone() -> None:
    declared = Preparation(mean=(0.5,), std=(0.2,), flip=True)
    told = with_augmentation(recipe(images=SOME), declared)
    assert told.images == ImagesSection(mean=(0.5,), std=(0.2,), **SOME)
    wanted = ImageTransforms(**SOME)
    assert augment_of(told.training, told.images) == Augment(
        flip=True, fill="reflect", transforms=wanted
    )
    assert with_augmentation(recipe(images=SOME), UNPREPARED).images == ImagesSection(**SOME)


ALGORITHMS = ["fedavg", "fedmix", "ensemble", "fedma", "fedmoe", "ifca", "pfnm"]
"""One for each place where a job is made."""


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_transforms_change_the_result_and_repeat(algorithm: str, tmp_path: Path) -> None:
    path = images(tmp_path / "data.npz", shape=(1, 9, 8))

    def ended(name: str, wanted: dict[str, Any], training: dict[str, Any] | None = None) -> str:
        chosen = plan(path, training, wanted).model_dump(mode="json", exclude_unset=True)
        chosen["algorithm"] = {"name": algorithm}
        chosen["model"] = {"name": "mlp", "hidden": [8]}
        chosen["rounds"] = {"count": 1}
        return digest(tmp_path / name, Recipe.model_validate(chosen))

    plain, first = ended("plain", {}), ended("first", SOME)
    assert plain != first
    if algorithm == "fedavg":  # how a job is trained does not depend on who made it
        assert first == ended("again", SOME)
        both = ended("both", SOME, {"crop": 1, "flip": True})
        assert len({plain, first, both, ended("other", {**SOME, "erase": 1.0})}) == 4


@pytest.mark.parametrize("table", [{}, {"magnitude": 3}])
def test_tasks_tell_of_images_what_the_recipe_says(table: dict[str, Any], tmp_path: Path) -> None:
    here = World(tmp_path, recipe(images=table))
    fleet = TamperedFleet(here.devices)
    here.engine(fleet).run()
    assert here.record.status == "finished"
    stated = ImagesSection.model_validate(table).model_dump(mode="json") if table else {}
    assert [each.images for asked in fleet.asked for each in asked.tasks] == [stated] * 12
    here.close()


@pytest.mark.parametrize(
    "wanted",
    [
        {"resized_crop": 1.1},
        {"resized_crop": -0.1},
        {"rand_augment": -1},
        {"magnitude": 31},
        {"brightness": -0.1},
        {"contrast": float("inf")},
        {"saturation": float("nan")},
        {"hue": 0.6},
        {"erase": 1.5},
        {"solarize": True},
    ],
)
def test_what_torchvision_does_not_take_is_no_recipe(wanted: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wanted))):
        ImagesSection.model_validate(wanted)


def test_a_recipe_says_no_more_than_training_can_do() -> None:
    with pytest.raises(ValueError, match="crop"):
        TrainingSection(crop=-1)

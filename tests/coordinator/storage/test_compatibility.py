"""Which devices' data fit a run, and the reasons for the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edgefed.algorithms.interface.member import Member
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.storage.compatibility import DataSpec, check_compatibility, misfit
from edgefed.data.base.types import ClassNames, Dataset, no_samples
from edgefed.errors import DataError
from tests.run_fixture import samples

SHAPE = (1, 4, 4)
PETS = ("cat", "dog")


def member(device: str, names: ClassNames = (), **other: Any) -> Member:
    values = {"samples": 5, "shape": SHAPE, "classes": len(names) or 3, "class_names": names}
    return Member(device, **{**values, **other})


def nothing(classes: int = 0, shape: tuple[int, ...] = ()) -> Dataset:
    return Dataset(no_samples(shape), no_samples(shape), classes, shape)


def held(names: ClassNames = (), classes: int = 3) -> Dataset:
    part = samples(4, 1, SHAPE)
    return Dataset(part, part, len(names) or classes, SHAPE, class_names=names)


def recipe(*classes: str, **sections: Any) -> Recipe:
    return Recipe.model_validate({"data": {"name": "none", "classes": list(classes)}, **sections})


def spec_of(plan: Recipe, dataset: Dataset, *members: Member) -> DataSpec:
    found = check_compatibility(plan, dataset, members)
    assert found.spec is not None
    assert (found.misfits, found.problem) == ((), None)
    return found.spec


def problem_of(plan: Recipe, dataset: Dataset, *members: Member) -> DataError:
    found = check_compatibility(plan, dataset, members)
    assert found.spec is None
    assert found.problem is not None
    assert {each.device for each in found.misfits} == {each.device for each in members}
    return found.problem


def reasons_of(plan: Recipe, dataset: Dataset, *members: Member) -> dict[str, str]:
    found = check_compatibility(plan, dataset, members)
    assert found.problem is None
    return {each.device: each.reason for each in found.misfits}


def test_equal_lists_are_the_runs_list() -> None:
    both = (member("a", PETS), member("b", PETS))
    assert spec_of(recipe(), nothing(), *both) == DataSpec(SHAPE, 2, PETS)
    assert spec_of(recipe(), held(PETS), *both).class_names == PETS


@pytest.mark.parametrize(
    ("other", "union"),
    [
        (("cat", "eel"), '["cat", "dog", "eel"]'),
        (("dog", "cat"), '["cat", "dog"]'),
        (("cat",), '["cat", "dog"]'),
        ((), '["cat", "dog"]'),
        (("10", "9"), '["9", "10", "cat", "dog"]'),
    ],
)
def test_lists_that_differ_are_a_problem_with_the_line_to_paste(
    other: ClassNames, union: str
) -> None:
    problem = problem_of(recipe(), nothing(), member("a", PETS), member("b", other))
    assert problem.code == "data.classes"
    assert problem.hint.endswith(f"classes = {union}")
    assert "a has 'cat', 'dog'" in problem.message
    assert ("b does not name its classes" in problem.message) == (not other)


def test_the_coordinators_list_must_be_the_devices_too() -> None:
    both = (member("a", PETS), member("b", PETS))
    for dataset in (held(("cat", "dog", "eel")), held()):
        told = problem_of(recipe(), dataset, *both).message
        assert "the coordinator " in told
    assert '"eel"' in problem_of(recipe(), held(("cat", "dog", "eel")), *both).hint


def test_a_stated_list_takes_devices_that_lack_classes_and_refuses_others_by_name() -> None:
    plan = recipe("eel", "dog", "cat")
    spec = spec_of(plan, nothing(), member("a", PETS), member("b", ("eel",)))
    assert spec == DataSpec(SHAPE, 3, ("eel", "dog", "cat"))
    assert reasons_of(
        plan,
        nothing(),
        member("a", PETS),
        member("b", ("cat", "Dog", "wasp")),
        member("c", ("cat", "cat")),
        member("d"),
        member("e", samples=0),
    ) == {
        "b": "it has classes that data.classes does not list: 'Dog', 'wasp'",
        "c": "it names the class 'cat' twice",
        "d": "it does not name its classes, and others do; store the names in its data (`classes`)",
        "e": "it has no samples to train on",
    }


def test_without_a_stated_list_the_reason_names_the_list_of_the_others() -> None:
    later = member("c", ("cat", "birds"))
    assert misfit(recipe(), DataSpec(SHAPE, 2, PETS), later) == (
        "it has classes that the run's other devices do not name ('cat', 'dog'): 'birds'"
    )


def test_a_number_of_classes_other_than_the_names_is_told_as_that() -> None:
    counted = replace(nothing(), classes=3)
    told = problem_of(recipe(), counted, member("a", PETS), member("b", PETS)).message
    assert told.startswith("data.classes of the recipe is 3, and the devices name 2 classes.")
    assert "differ" not in told


def test_integers_stand_for_places_in_the_list_only_where_no_device_names_classes() -> None:
    spec = spec_of(recipe("cat", "dog", "eel"), nothing(), member("a"), member("b"))
    assert spec.by_position
    joins_later = member("c", ("cat", "dog"))
    assert "it names its classes" in misfit(recipe("cat", "dog", "eel"), spec, joins_later)
    joined = reasons_of(recipe("cat", "dog"), nothing(), member("a", classes=2), member("b"))
    assert joined == {"b": "it has 3 classes, the run lists 2"}
    numbers = recipe("0", "1", "2")
    assert spec_of(numbers, nothing(), member("a"), member("b", ("", "1"))).classes == 3


def test_plain_integers_fit_each_other_however_many_each_holds() -> None:
    three, gaps = member("a"), member("b", ("", "", "2", "", "4"), classes=5)
    assert spec_of(recipe(), nothing(), three, gaps) == DataSpec(SHAPE, 5)
    assert reasons_of(recipe(), held(classes=4), three, gaps) == {
        "b": "it has 5 classes, the run has 4 (data.classes)"
    }


def test_targets_that_are_numbers_must_be_as_many() -> None:
    plan = recipe(training={"loss": "squared_error"})
    found = reasons_of(plan, nothing(classes=2, shape=SHAPE), member("a", classes=1))
    assert found == {"a": "its targets have 1 number, the run's 2"}


def test_other_shapes_are_told_with_the_way_to_scale_images() -> None:
    small = member("b", shape=(1, 2, 2))
    assert reasons_of(recipe(), nothing(3, SHAPE), member("a"), small) == {
        "b": "its inputs are 1x2x2, the run's are 1x4x4;"
        " images are scaled with folder:FOLDER?size=4"
    }
    problem = problem_of(recipe(), nothing(), member("a"), small, member("c"))
    assert problem.code == "data.shape"
    assert "1x4x4 on a, c; 1x2x2 on b" in problem.message
    assert "?size=2" in problem.hint
    flat = problem_of(recipe(), nothing(), member("a", shape=(3,)), member("b", shape=(4,)))
    assert "size" not in flat.hint


GREY, COLOUR = (1, 32, 32), (3, 32, 32)


def test_grey_images_in_a_colour_run_are_told_with_the_option_that_made_them_grey() -> None:
    colourless = "images have three channels without greyscale=true in folder:FOLDER"
    assert reasons_of(recipe(), nothing(3, COLOUR), member("a", shape=GREY)) == {
        "a": f"its inputs are 1x32x32, the run's are 3x32x32; {colourless}"
    }
    assert reasons_of(recipe(), nothing(3, GREY), member("a", shape=(3, 8, 8))) == {
        "a": "its inputs are 3x8x8, the run's are 1x32x32; images become grey with"
        " folder:FOLDER?greyscale=true; images are scaled with folder:FOLDER?size=32"
    }
    problem = problem_of(recipe(), nothing(), member("a", shape=GREY), member("b", shape=COLOUR))
    assert "state the run's shape in the recipe's [data] table: shape = [1, 32, 32]" in problem.hint


def test_a_network_for_colour_images_leaves_grey_devices_out() -> None:
    plan = recipe(model={"name": "torchvision:shufflenet_v2_x0_5"})
    colour, grey = member("a", shape=COLOUR), member("b", shape=GREY)
    found = check_compatibility(plan, nothing(), (colour, grey))
    assert found.spec == DataSpec(COLOUR, 3)
    assert [each.device for each in found.misfits] == ["b"]
    alone = check_compatibility(plan, nothing(), (grey,))
    assert alone.spec == DataSpec(GREY, 3), "the model refuses it (model.input)"
    large = member("c", shape=(3, 64, 64))
    problem = problem_of(plan, nothing(), colour, grey, large)
    assert problem.code == "data.shape"
    assert "shape = [3, 32, 32]" in problem.hint


def test_without_devices_only_the_data_set_tells() -> None:
    assert spec_of(recipe(), held(PETS)).class_names == PETS
    found = check_compatibility(recipe(), nothing(), (replace(member("a"), samples=0),))
    assert found.problem is not None
    assert found.problem.message == "No device with data is online."

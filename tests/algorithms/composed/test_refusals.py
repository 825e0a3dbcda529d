"""What a run cannot be made of is refused before any device is asked, with a code and a hint."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from torch import nn

from edgefed.algorithms.averaging.fedavg import FedAvg
from edgefed.algorithms.composed.method import complete_section
from edgefed.algorithms.composed.registry import built_in, check_fleet, make, make_device_half
from edgefed.config.recipes.images_section import ImagesSection
from edgefed.config.recipes.recipe import LabelsSection, ModelSection, Recipe
from edgefed.config.recipes.training_section import TrainingSection
from edgefed.errors import RecipeError, UsageError, WireError
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build
from tests.algorithms.play import algorithm, task_fields
from tests.run_fixture import CLASSES, SHAPE

NUMBERS = build(ModelSection.model_validate({"name": "mlp", "hidden": [3]}), SHAPE, CLASSES, 1)
TOKENS = build(
    ModelSection.model_validate({"name": "lstm", "hidden": 4, "embedding": 3}), (5,), 6, 1
)
DEEP_TOKENS = Model(
    nn.Sequential(nn.Embedding(6, 2), nn.Flatten(), nn.Linear(10, 4), nn.Linear(4, 3)),
    (5,),
    CLASSES,
    vocabulary=6,
)

SPLIT, SAME, KIND = "algorithm.split", "algorithm.same_class", "algorithm.tokens"
REFUSED: list[tuple[str, Model, dict[str, Any], str, str]] = [
    ("localmix", TOKENS, {}, KIND, "localmix mixes inputs"),
    ("naivemix", TOKENS, {}, KIND, "naivemix mixes inputs"),
    ("fedmix", TOKENS, {}, KIND, "fedmix mixes inputs"),
    ("globalmix", TOKENS, {}, KIND, "globalmix mixes inputs"),
    ("fedmix", NUMBERS, {"split": 7}, SPLIT, "7 layers"),
    ("fedmix", DEEP_TOKENS, {"split": 2}, SPLIT, "2 layers"),
    ("globalmix", TOKENS, {"split": 1, "noise": 0.1}, KIND, "globalmix mixes raw tokens"),
    ("globalmix", TOKENS, {"split": 1, "entries": "random"}, KIND, "raw tokens"),
    ("fedmix", NUMBERS, {"same_class": True, "loss": "squared_error"}, SAME, "no labels"),
    ("fedmix", NUMBERS, {"split": 1, "entries": "own"}, SPLIT, "hidden states"),
]


def made(name: str, loss: str = "cross_entropy", **settings: Any) -> Any:
    values = {"algorithm": {"name": name, **settings}, "training": {"loss": loss}}
    return make(Recipe.model_validate(values))


@pytest.mark.parametrize(("name", "model", "settings", "code", "said"), REFUSED)
def test_what_a_model_cannot_be_trained_with(
    name: str, model: Model, settings: dict[str, Any], code: str, said: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        made(name, **settings).check_model(model)
    assert caught.value.code == code
    assert said in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        (NUMBERS, {"same_class": True}),
        (NUMBERS, {"loss": "squared_error"}),
        (NUMBERS, {"entries": "own"}),
        (NUMBERS, {"split": 1}),
        (TOKENS, {"split": 1, "entries": "own"}),
        (DEEP_TOKENS, {"split": 1, "noise": 0.1}),
    ],
)
def test_what_a_model_can_be_trained_with(model: Model, settings: dict[str, Any]) -> None:
    made("fedmix", **settings).check_model(model)


@pytest.mark.parametrize(
    ("missing", "added", "code", "said"),
    [
        (("loss", "epochs"), {}, "wire.incomplete", "does not contain epochs, loss of training"),
        ((), {"epochs": -1}, "wire.malformed", "epochs of training: "),
        ((), {"new_key": 1}, "wire.malformed", "new_key of training: "),
    ],
)
def test_a_section_of_a_task_is_complete_and_in_range(
    missing: tuple[str, ...], added: dict[str, Any], code: str, said: str
) -> None:
    values = {**TrainingSection().model_dump(mode="json"), **added}
    given = {key: value for key, value in values.items() if key not in missing}
    with pytest.raises(WireError) as caught:
        complete_section(TrainingSection, given, "training")
    assert caught.value.code == code
    assert said in caught.value.message
    assert caught.value.hint


def test_a_wrong_value_inside_a_section_is_named_with_its_place() -> None:
    class Inner(BaseModel):
        size: int

    class Outer(BaseModel):
        inner: Inner

    with pytest.raises(WireError, match=r"^inner\.size of outer: "):
        complete_section(Outer, {"inner": {"size": "large"}}, "outer")


def test_a_task_says_in_which_section_a_value_is_missing() -> None:
    fields = task_fields(Recipe())
    make_device_half(fields)
    for wrong, said in (("settings", "of algorithm 'fedavg'"), ("training", "of training")):
        with pytest.raises(WireError, match=said):
            make_device_half({**fields, wrong: {}})


def test_the_device_half_of_any_algorithm_has_the_images_of_the_task() -> None:
    tables = {
        "images": ImagesSection(flip=True, mean=(0.5,), std=(0.25,)),
        "labels": LabelsSection(count=3),
    }
    for name in built_in():
        plan = Recipe.model_validate({"algorithm": {"name": name}})
        assert make_device_half(task_fields(plan)).images == ImagesSection()
        plan = plan.model_copy(update=tables)
        assert make_device_half(task_fields(plan)).images == tables["images"]


class Raw(FedAvg):
    """Needs a simulation whatever its settings."""

    name = "raw"
    simulation_only = True


def test_what_only_a_simulation_has_is_refused_for_a_fleet() -> None:
    plain = algorithm("fedavg")
    check_fleet(plain)
    for half in (Raw(plain.settings, plain.training), algorithm("globalmix", entries="own")):
        with pytest.raises(UsageError, match=f"with {half.name} needs raw data") as caught:
            check_fleet(half)
        assert caught.value.code == "run.simulation_only"
        assert caught.value.hint

"""What a mixture of experts is refused for, before any device is asked."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from edgefed.algorithms.composed.registry import make
from edgefed.config.recipes.recipe import ModelSection, Recipe
from edgefed.errors import RecipeError
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build
from tests.algorithms.play import algorithm
from tests.run_fixture import CLASSES, SHAPE


def recipe(labels: dict[str, Any] | None = None, **settings: Any) -> Recipe:
    sections = {"labels": labels} if labels else {}
    return Recipe.model_validate({"algorithm": {"name": "fedmoe", **settings}, **sections})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"experts": 0}, "algorithm.experts: must be at least 1, got 0"),
        ({"experts": 65}, "algorithm.experts: must be at most 64, got 65"),
        ({"prune": -0.1}, "algorithm.prune: must be at least 0, got -0.1"),
        ({"prune": 1.5}, "algorithm.prune: must be at most 1, got 1.5"),
        ({"damping": 1.0}, "algorithm.damping: must be less than 1, got 1.0"),
        ({"entropy": "some"},
         'algorithm.entropy: must be one of "none", "local" or "direct", got "some"'),
        ({"condition": "rotation"},
         "algorithm.condition_values: must say how many values the column 'rotation' has"),
        ({"condition": "device", "condition_values": 3},
         'algorithm.condition_values: must be left out with condition = "device"'),
        ({"condition_values": 3},
         'algorithm.condition_values: must be left out with condition = "label"'),
    ],
)  # fmt: skip
def test_settings_out_of_range(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError) as caught:
        make(recipe(**settings))
    assert caught.value.message == said
    assert caught.value.hint == "edgefed algo show fedmoe"


def test_the_table_has_a_row_for_each_condition() -> None:
    assert make(recipe(condition="rotation", condition_values=8)).settings.conditions(10) == 8
    assert make(recipe()).settings.conditions(10) == 10
    assert make(recipe(condition="device")).settings.conditions(10) == 0


def test_supplements_of_labels_have_no_column() -> None:
    labels = {"count": 5}
    model = build(ModelSection.model_validate({"name": "cnn"}), (1, 8, 8), CLASSES, 1)
    make(recipe(labels)).check_model(model)
    with pytest.raises(RecipeError) as caught:
        make(recipe(labels, condition="site", condition_values=3)).check_model(model)
    assert "supplements have no column 'site'" in caught.value.message
    assert caught.value.code == "label.unfit"


class Odd(nn.Module):
    """A network with features, and something that experts cannot have."""

    scale: torch.Tensor

    def __init__(self, how: str) -> None:
        super().__init__()
        self.body, self.out = nn.Linear(SHAPE[0], 4), nn.Linear(4, CLASSES)
        self.last = nn.Linear(CLASSES, 2) if how == "hidden" else nn.Identity()
        if how == "buffer":
            self.register_buffer("scale", torch.arange(4.0))
        if how == "frozen":
            self.body.weight.requires_grad_(False)
        if how == "other":
            self.register_buffer("scale", torch.arange(4.0), persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.out(torch.relu(self.body(inputs)))  # type: ignore[no-any-return]


NORMALISED = Model(
    nn.Sequential(nn.Linear(SHAPE[0], 4), nn.BatchNorm1d(4), nn.Linear(4, CLASSES)), SHAPE, CLASSES
)
NO_LAYER = Model(nn.Sequential(nn.Linear(SHAPE[0], CLASSES), nn.Softmax(1)), SHAPE, CLASSES)


@pytest.mark.parametrize(
    ("model", "code", "said"),
    [
        (NORMALISED, "algorithm.model",
         "Experts cannot have batch normalisation, whose statistics are not trained."),
        (Model(Odd("buffer"), SHAPE, CLASSES), "algorithm.model",
         "Experts cannot have weights that are not trained, such as scale."),
        (Model(Odd("frozen"), SHAPE, CLASSES), "algorithm.model",
         "Experts cannot have weights that are not trained, such as body.weight."),
        (NO_LAYER, "model.features",
         "This model has no output layer whose inputs could serve as features."),
        (Model(Odd("hidden"), SHAPE, CLASSES), "model.features",
         "The output layer is not the last layer of the model."),
    ],
)  # fmt: skip
def test_models_that_cannot_be_experts(model: Model, code: str, said: str) -> None:
    with pytest.raises(RecipeError) as caught:
        algorithm("fedmoe").check_model(model)
    assert (caught.value.code, caught.value.message) == (code, said)
    assert caught.value.hint
    algorithm("fedmoe", experts=1).check_model(model)  # which has no gate
    algorithm("fedmoe").check_model(Model(Odd("other"), SHAPE, CLASSES))


def test_numbers_as_targets_have_no_mixture() -> None:
    plan = Recipe.model_validate(
        {"algorithm": {"name": "fedmoe"}, "training": {"loss": "squared_error"}}
    )
    model = build(ModelSection.model_validate({"name": "mlp", "hidden": [3]}), SHAPE, CLASSES, 1)
    with pytest.raises(RecipeError) as caught:
        make(plan).check_model(model)
    assert caught.value.code == "algorithm.loss"
    assert caught.value.message == "A mixture of experts is trained with cross-entropy only."

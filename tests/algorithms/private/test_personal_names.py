"""Which weights stay on devices: patterns and presets, and what they must not name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from edgefed.algorithms.private.personal_names import personal_names
from edgefed.config.recipes.recipe import ModelSection, PersonalSection
from edgefed.errors import RecipeError
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build


def model(name: str, shape: tuple[int, ...], **settings: Any) -> Model:
    return build(ModelSection.model_validate({"name": name, **settings}), shape, 10, seed=1)


def mlp() -> Model:
    return model("mlp", (8,), hidden=[4])


def names(given: Model, **keys: Any) -> tuple[str, ...]:
    return personal_names(PersonalSection.model_validate(keys), given)


@pytest.mark.parametrize(
    ("name", "shape", "biased", "lg"),
    [
        ("mlp", (8,), "out.bias", ("fc1.weight", "fc1.bias")),
        ("lenet5-wide", (1, 28, 28), "fc2.bias", ("conv1.weight", "conv1.bias")),
        ("resnet20", (3, 8, 8), "fc.bias", ("conv1.weight",)),
        ("lstm", (20,), "decoder.bias", ("embedding.weight",)),
    ],
)
def test_presets_name_the_first_and_the_last_layer(
    name: str, shape: tuple[int, ...], biased: str, lg: tuple[str, ...]
) -> None:
    network = model(name, shape)
    assert names(network, preset="biased") == (biased,)
    assert names(network, preset="fedper") == (biased.replace("bias", "weight"), biased)
    assert names(network, preset="lg") == lg


def test_fedbn_names_all_of_every_normalisation_layer_and_nothing_else() -> None:
    network = model("resnet20", (3, 8, 8), norm="batch")
    found = names(network, preset="fedbn")
    layers = {name.rpartition(".")[0] for name in network.names if name.endswith("running_var")}
    assert len(layers) == 19
    kinds = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    assert set(found) == {f"{layer}.{kind}" for layer in layers for kind in kinds}
    grouped = model("resnet20", (3, 8, 8))
    assert set(names(grouped, preset="fedbn")) == set(found) & set(grouped.names)


def test_looking_for_the_first_layer_changes_no_running_statistics() -> None:
    network = model("resnet20", (3, 8, 8), norm="batch")
    network.module.train()
    before = {name: value.clone() for name, value in network.module.state_dict().items()}
    assert names(network, preset="lg") == ("conv1.weight",)
    assert network.module.training
    after = network.module.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_the_input_layer_is_the_one_that_is_used_first() -> None:
    class Reversed(nn.Module):
        """Its layers are declared in another order than they are used in."""

        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(3, 10)
            self.first = nn.Linear(8, 3)

        def forward(self, inputs: Any) -> Any:
            return self.last(self.first(inputs))

    network = Model(Reversed(), (8,), 10)
    assert names(network, preset="lg") == ("first.weight", "first.bias")
    assert names(network, preset="biased") == ("last.bias",)


def test_patterns_and_a_preset_add_up_in_the_models_order() -> None:
    assert names(mlp(), weights=["*.bias"]) == ("fc1.bias", "out.bias")
    assert names(mlp(), weights=["out.b?as", "fc1.weight"]) == ("fc1.weight", "out.bias")
    assert names(mlp(), weights=["fc1.*"], preset="biased") == (
        "fc1.weight",
        "fc1.bias",
        "out.bias",
    )
    assert names(mlp(), fine_tune_epochs=1) == ()


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"weights": ["out.bias", "FC1.bias"]}, "No weight of the model is called 'FC1.bias'"),
        ({"weights": ["*"]}, "keeps every weight on the devices"),
        ({"weights": ["fc1.*"], "preset": "fedper"}, "keeps every weight on the devices"),
        ({"preset": "fedbn"}, 'nothing that personal.preset = "fedbn" names'),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_names_that_there_are(
    keys: dict[str, Any], said: str
) -> None:
    with pytest.raises(RecipeError, match=said) as caught:
        names(mlp(), **keys)
    assert caught.value.code == "personal.weights"
    assert caught.value.hint.endswith("fc1.weight, fc1.bias, out.weight, out.bias")


def test_sharing_nothing_but_running_statistics_is_refused() -> None:
    network = model("resnet20", (3, 8, 8), norm="batch")
    with pytest.raises(RecipeError, match="every weight") as caught:
        names(network, weights=["*weight", "*bias"])
    assert caught.value.hint.endswith(f"and {len(network.names) - 12} more")


def test_a_network_without_an_output_layer_has_no_bias_of_it() -> None:
    network = Model(nn.Sequential(nn.Flatten(), nn.Linear(8, 10), nn.Softmax(1)), (8,), 10)
    with pytest.raises(RecipeError, match="biased"):
        names(network, preset="biased")


@pytest.mark.parametrize(
    "keys", [{"preset": "lg"}, {"weights": ["fc1.*"]}, {"weights": ["out.*", "fc1.bias"]}]
)
def test_what_names_frozen_weights_only_is_refused(keys: dict[str, Any]) -> None:
    partly = model("mlp", (8,), hidden=[4, 4], train="last:2")
    with pytest.raises(RecipeError, match="frozen") as caught:
        names(partly, **keys)
    assert caught.value.code == "personal.weights"
    assert "model.train" in str(caught.value.hint)

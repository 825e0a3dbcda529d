"""The layer whose inputs are a model's features, found by running the model once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import vmap

from edgefed.config.recipes.recipe import ModelSection
from edgefed.errors import DataError
from edgefed.learn.base.types import Array
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build
from edgefed.learn.training.trainer import Trainer

NETWORKS: list[tuple[str, dict[str, object], tuple[int, ...], str]] = [
    ("mlp", {"hidden": [5]}, (1, 8, 8), "out"),
    ("cnn", {}, (1, 8, 8), "fc2"),
    ("lenet5-wide", {}, (1, 28, 28), "fc2"),
    ("resnet20", {}, (3, 16, 16), "fc"),
    ("lstm", {"hidden": 4, "embedding": 3}, (5,), "decoder"),
]


class TorchvisionLike(nn.Module):
    """A network as torchvision's ResNet is written: named parts, and ``fc`` at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 3)  # defined first: the order of definition says nothing
        self.conv1 = nn.Conv2d(1, 6, 3, bias=False)
        self.projection = nn.Linear(6, 6)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = torch.flatten(self.avgpool(torch.relu(self.conv1(inputs))), 1)
        return self.fc(hidden + torch.relu(self.projection(hidden)))  # type: ignore[no-any-return]


class Bent(nn.Module):
    """A network whose output is not its last linear layer's."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.out, self.square = how, nn.Linear(4, 3), nn.Linear(3, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.how == "softmax":
            return torch.softmax(self.out(inputs), dim=1)
        if self.how == "twice":
            return self.square(torch.relu(self.square(self.out(inputs))))  # type: ignore[no-any-return]
        if self.how == "wide":
            return self.out(inputs.unsqueeze(1))  # type: ignore[no-any-return]
        return inputs[:, :3] * self.out.weight.sum()


def tokens_or_numbers(model: Model, count: int = 4) -> Array:
    rng = np.random.default_rng(1)
    if model.vocabulary:
        return rng.integers(0, model.vocabulary, (count, *model.shape))
    return rng.standard_normal((count, *model.shape)).astype(np.float32)


def check(model: Model, name: str) -> None:
    layer = model.output_layer
    assert layer.name == name
    trainer, weights = Trainer(model, "cpu"), model.weights()
    inputs = tokens_or_numbers(model)
    logits, features = trainer.predict_with_features(weights, inputs)
    assert features.shape == (len(inputs), layer.width)
    np.testing.assert_array_equal(logits, trainer.predict(weights, inputs))
    again = features @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
    np.testing.assert_allclose(again, logits, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("network", "settings", "shape", "name"), NETWORKS)
def test_features_and_output_layer_make_the_logits(
    network: str, settings: dict[str, object], shape: tuple[int, ...], name: str
) -> None:
    classes = 6 if network == "lstm" else 3
    section = ModelSection.model_validate({"name": network, **settings})
    check(build(section, shape, classes, 1), name)


def test_a_network_that_is_no_sequence_of_layers() -> None:
    torch.manual_seed(1)
    check(Model(TorchvisionLike(), (1, 5, 5), 3), "fc")


@pytest.mark.parametrize("how", ["softmax", "twice", "wide", "none"])
def test_a_model_without_such_a_layer_is_refused(how: str) -> None:
    model = Model(Bent(how), (4,), 3)
    with pytest.raises(DataError) as caught:
        _ = model.output_layer
    assert caught.value.code == "model.features"
    assert caught.value.message == (
        "This model has no output layer whose inputs could serve as features."
    )


def test_looking_for_it_changes_nothing() -> None:
    last = nn.Linear(4, 3)
    module = nn.Sequential(nn.Dropout(0.5), last)
    model, before = Model(module.train(), (4,), 3), last.weight.detach().clone()
    assert model.output_layer.width == 4
    assert module.training
    assert torch.equal(before, last.weight)
    assert not last._forward_hooks
    model.forward_with_features({}, torch.zeros(1, 4))
    assert not last._forward_pre_hooks


def test_features_of_many_sets_of_weights_at_once() -> None:
    model = Model(TorchvisionLike(), (1, 5, 5), 3)
    one = {name: torch.from_numpy(array) for name, array in model.weights().items()}
    two = {name: 2 * tensor for name, tensor in one.items()}
    both = {name: torch.stack([one[name], two[name]]) for name in one}
    inputs = torch.from_numpy(tokens_or_numbers(model))
    _, stacked = vmap(model.forward_with_features, in_dims=(0, None))(both, inputs)
    for params, features in zip((one, two), stacked, strict=True):
        alone = model.forward_with_features(params, inputs)[1]
        torch.testing.assert_close(features, alone)

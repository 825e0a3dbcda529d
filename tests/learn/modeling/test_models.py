"""The registry of models, their sizes, and the model as a pure function."""

from __future__ import annotations

import mmap

import numpy as np
import pytest
import torch
from torch import nn

from edgefed.config.recipes.recipe import ModelSection
from edgefed.errors import DataError, RecipeError
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import NETWORKS, build
from edgefed.learn.networks.base import Network, NetworkSettings
from tests.algorithms.play import bits
from tests.learn import worlds


def parameters(model: Model) -> int:
    return sum(model.weights()[name].size for name in model.parameter_names)


def test_cnn_on_digits_has_the_layers_it_says() -> None:
    sizes = {name: array.shape for name, array in worlds.model("cnn").weights().items()}
    assert sizes == {
        "conv1.weight": (16, 1, 3, 3),
        "conv1.bias": (16,),
        "conv2.weight": (32, 16, 3, 3),
        "conv2.bias": (32,),
        "fc1.weight": (64, 128),
        "fc1.bias": (64,),
        "fc2.weight": (3, 64),
        "fc2.bias": (3,),
    }


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        *((name, (3, 32, 32)) for name in sorted(set(NETWORKS) - {"lstm"})),
        ("lstm", (5,)),
        ("resnet18", (1, 4, 4)),
        ("resnet20", (1, 5, 4)),
        ("vgg9", (1, 8, 9)),
        ("cnn", (1, 8, 8)),
        ("cnn", (2, 9, 13)),
        ("mlp", (2, 9, 13)),
        ("mlp", (5,)),
    ],
)
def test_every_model_answers_one_logit_a_class(name: str, shape: tuple[int, ...]) -> None:
    model = build(ModelSection(name=name), shape, 7, seed=3)
    params = {key: torch.from_numpy(array) for key, array in model.weights().items()}
    inputs = torch.from_numpy(np.zeros((4, *shape), model.input_kind))
    assert model.forward(params, inputs).shape == (4, 7)


@pytest.mark.parametrize("padding", [0, 2])
def test_lenet5_takes_the_smallest_input_that_it_says(padding: int) -> None:
    section = ModelSection.model_validate({"name": "lenet5", "padding": padding})
    smallest = 16 - 2 * padding
    build(section, (1, smallest, smallest), 2, seed=1)
    with pytest.raises(DataError, match=f"at least {smallest}×{smallest}") as caught:
        build(section, (1, smallest, smallest - 1), 2, seed=1)
    assert caught.value.code == "model.input"


def test_weights_depend_on_the_seed_alone_and_leave_the_global_generator() -> None:
    torch.manual_seed(1)
    first = worlds.model("cnn", seed=7).weights()
    after_first = torch.rand(1)
    torch.manual_seed(1)
    untouched = torch.rand(1)
    torch.manual_seed(99)
    second = worlds.model("cnn", seed=7).weights()
    other = worlds.model("cnn", seed=8).weights()
    assert torch.equal(after_first, untouched)
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert not np.array_equal(first["fc1.weight"], other["fc1.weight"])


def test_weights_are_a_copy() -> None:
    model = worlds.model()
    model.weights()["out.bias"][:] = 9
    assert not (model.weights()["out.bias"] == 9).any()


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(RecipeError, match="no model 'lenet'") as caught:
        worlds.model("lenet")
    assert caught.value.code == "model.unknown"
    assert "lenet5" in caught.value.hint


def test_an_unknown_setting_names_the_nearest() -> None:
    with pytest.raises(RecipeError, match="no setting 'hiden'") as caught:
        worlds.model("mlp", hiden=[3])
    assert "'hidden'" in caught.value.hint


def test_a_setting_out_of_range_names_key_and_value() -> None:
    with pytest.raises(RecipeError, match=r"model\.padding = 1") as caught:
        worlds.model("lenet5", padding=1)
    assert caught.value.code == "model.setting"


def test_names_hold_parameters_and_buffers_in_order_and_tied_weights_once() -> None:
    model = worlds.normalised_model()
    assert model.names[:5] == (
        "1.weight",
        "1.bias",
        "1.running_mean",
        "1.running_var",
        "1.num_batches_tracked",
    )
    assert model.buffer_names == model.names[2:5]
    assert tuple(model.weights()) == model.names
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    assert Model(tied, (3,), 3).names == ("0.weight", "0.bias", "1.bias")


def test_forward_uses_the_weights_it_is_given_and_not_the_modules() -> None:
    model = worlds.model("mlp", hidden=[])
    params = {
        "out.weight": torch.zeros(3, 64),
        "out.bias": torch.tensor([1.0, 2.0, 3.0]),
    }
    assert model.forward(params, torch.ones(1, 1, 8, 8)).tolist() == [[1.0, 2.0, 3.0]]
    assert model.weights()["out.weight"].any()


def test_weights_of_another_model_are_refused() -> None:
    model = worlds.model("mlp", hidden=[4])
    short = model.weights()
    del short["out.bias"]
    with pytest.raises(DataError, match=r"out\.bias"):
        model.check(short)
    with pytest.raises(DataError, match=r"fc1\.weight is \(5, 64\), not \(4, 64\)"):
        model.check(worlds.model("mlp", hidden=[5]).weights())
    with pytest.raises(DataError, match="more"):
        model.check({**model.weights(), "more": np.zeros(1)})


def test_the_registry_is_open() -> None:
    linear = Network("own", "ours", NetworkSettings, lambda _s, shape, n: nn.Linear(shape[0], n))
    model = build(ModelSection(name="own"), (4,), 2, 1, {"own": linear})
    assert parameters(model) == 10


class Owner(nn.Module):
    """A module whose parameter is also in use elsewhere."""

    TABLE = torch.ones(5000, 8)

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(self.TABLE)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return (inputs @ self.table.T)[:, :3]


@pytest.mark.parametrize("in_place", [True, False])
def test_weights_that_were_freed_are_drawn_again_and_change_no_prediction(in_place: bool) -> None:
    section = ModelSection.model_validate({"name": "mlp", "hidden": [3000]})
    model, again = (build(section, (4,), 3, 6) for _ in range(2))
    first, inputs = model.weights(), torch.ones(2, 4)
    params = {name: torch.from_numpy(array) for name, array in first.items()}
    before = model.forward(params, inputs)
    weight = dict(model.module.named_parameters())["fc1.weight"]
    start = mmap.PAGESIZE // weight.element_size()  # the first page may hold something else too
    model.free_weights(lambda: again, in_place=in_place)
    assert not weight.reshape(-1)[start : 2 * start].any()
    assert bits(model.weights()) == bits(first)
    assert torch.equal(model.forward(params, inputs), before)
    model.check(first)
    assert model.output_layer.name == "out"


def test_memory_that_others_use_stays_as_it_is() -> None:
    model = Model(Owner(), (8,), 3)
    model.free_weights(lambda: model, in_place=False)
    assert bool((Owner.TABLE == 1).all())
    (table,) = model.module.parameters()
    assert not table.data.reshape(-1)[4096:8192].any()

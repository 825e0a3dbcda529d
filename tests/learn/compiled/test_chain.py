"""The compiled gradient of small models is taken only where it fits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from edgefed.config.recipes.recipe import ModelSection
from edgefed.learn.base.types import Batch, Context, Params
from edgefed.learn.compiled.compiled_chain import Chain, chain_of
from edgefed.learn.compiled.compiled_chain_plan import plan
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build
from edgefed.learn.networks.blocks import ConvPoolReLU
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.proximal import Proximal
from edgefed.learn.steps.capabilities import Phase
from edgefed.native.library import native

pytestmark = pytest.mark.skipif(native().library is None, reason=native().reason or "built")


def a_model(name: str, shape: tuple[int, ...], classes: int, **more: Any) -> Model:
    return build(ModelSection.model_validate({"name": name, **more}), shape, classes, seed=1)


def params_of(model: Model) -> Params:
    return {name: torch.tensor(part).requires_grad_() for name, part in model.weights().items()}


def a_batch(model: Model, size: int) -> Batch:
    chance = torch.Generator().manual_seed(2)
    inputs = torch.randn(size, *model.shape, generator=chance)
    return Batch(inputs, torch.randint(0, model.classes, (size,), generator=chance))


def chain_for(model: Model, params: Params, room: int = 40) -> Chain | None:
    return chain_of(model, Phase(CrossEntropy(), model.parameter_names), params, "fp32", room)


def found(
    chain: Chain, model: Model, batch: Batch, context: Context | None = None
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the loss and all gradients, copied."""
    got = chain.gradients(batch, model.parameter_names, context or Context({}))
    assert got is not None
    return got[0], [gradient.clone() for gradient in got[1]]


MODELS: list[tuple[str, tuple[int, ...], int, dict[str, Any]]] = [
    ("lenet5", (1, 28, 28), 62, {}),
    ("lenet5", (3, 32, 32), 10, {"padding": 2}),
    ("cnn", (1, 8, 8), 10, {}),
    ("cnn", (3, 13, 17), 7, {"width": 5, "hidden": 9}),
    ("mlp", (1, 8, 8), 10, {"hidden": [16, 8]}),
    ("mlp", (5,), 3, {"hidden": []}),
]


def test_what_diverged_is_no_number() -> None:
    model = a_model("lenet5", (1, 28, 28), 10)
    params, batch = params_of(model), a_batch(model, 4)
    chain = chain_for(model, params)
    assert chain is not None
    batch.inputs[2, 0, 3, 3] = float("nan")
    assert torch.isnan(found(chain, model, batch)[0])
    with torch.no_grad():
        params["fc3.weight"].fill_(float("inf"))
    assert torch.isnan(found(chain, model, a_batch(model, 4))[0])


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Flatten(), nn.Linear(64, 3, bias=False)],
        [nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 3)],
        [nn.Flatten(), nn.Linear(64, 3), nn.ReLU()],
        [nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 3)],
        [nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 3)],
        [ConvPoolReLU(1, 65, 3, 1), nn.Flatten(), nn.Linear(65 * 16, 3)],
        [nn.Flatten(), nn.Linear(64, 4096), nn.ReLU(), nn.Linear(4096, 3)],
    ],
)
def test_other_models_are_torchs(layers: list[nn.Module]) -> None:
    assert plan(Model(nn.Sequential(*layers), (1, 8, 8), 3)) == []


def test_a_model_that_somebody_watches_is_torchs() -> None:
    model = a_model("cnn", (1, 8, 8), 10)
    assert plan(model)
    model.module.get_submodule("fc1").register_forward_hook(lambda *_: None)
    assert plan(model) == []


class Other(Proximal):
    """A term that the kernels do not know."""


def test_other_work_is_torchs() -> None:
    model = a_model("cnn", (1, 8, 8), 10)
    params, names = params_of(model), model.parameter_names
    other_term = Other(CrossEntropy(), 0.1)
    assert chain_of(model, Phase(other_term, names), params, "fp32", 8) is None
    assert chain_of(model, Phase(CrossEntropy(), names), params, "bf16", 8) is None
    chain = chain_for(model, params, room=8)
    assert chain is not None
    batch = a_batch(model, 8)
    found(chain, model, batch)
    soft = torch.nn.functional.one_hot(batch.targets, 10)
    other = [
        a_batch(model, 9),
        Batch(batch.inputs[:0], batch.targets[:0]),
        Batch(batch.inputs[:7], batch.targets),
        Batch(batch.inputs[..., :7], batch.targets),
        Batch(batch.inputs.double(), batch.targets),
        Batch(batch.inputs, batch.targets.int()),
        Batch(batch.inputs, soft),
        Batch(batch.inputs, soft[:, :9].float()),
        Batch(batch.inputs, soft[:7].float()),
    ]
    for each in other:
        assert chain.gradients(each, names, Context({})) is None


@pytest.mark.parametrize("label", [-1, -100, 10, 2**40])
def test_a_label_that_is_no_class_reaches_no_memory(label: int) -> None:
    model = a_model("cnn", (1, 8, 8), 10)
    params, batch = params_of(model), a_batch(model, 8)
    chain = chain_for(model, params)
    assert chain is not None
    batch.targets[3] = label
    with pytest.raises(ValueError, match="not one of the classes"):
        chain.gradients(batch, model.parameter_names, Context({}))

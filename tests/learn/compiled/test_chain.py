"""The compiled gradient of small models: torch's numbers up to rounding, and only where it fits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from edgefed.config.recipes.recipe import ModelSection
from edgefed.learn.base.types import Batch, Context, Job, Params, Samples, Schedule
from edgefed.learn.compiled.compiled_chain import Chain, chain_of
from edgefed.learn.compiled.compiled_chain_plan import plan
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build
from edgefed.learn.networks.blocks import ConvPoolReLU
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.proximal import Proximal
from edgefed.learn.steps.capabilities import Phase
from edgefed.learn.training.trainer import Trainer
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


@pytest.mark.parametrize(("name", "shape", "classes", "more"), MODELS)
@pytest.mark.parametrize("size", [1, 20, 40])
def test_loss_and_gradients_are_torchs(
    name: str, shape: tuple[int, ...], classes: int, more: dict[str, Any], size: int
) -> None:
    model = a_model(name, shape, classes, **more)
    params, batch = params_of(model), a_batch(model, size)
    chain = chain_for(model, params)
    assert chain is not None
    loss, got = found(chain, model, batch)
    wide = {key: part.detach().double().requires_grad_() for key, part in params.items()}
    model.module.double()
    exact = CrossEntropy()(
        model.forward, wide, Batch(batch.inputs.double(), batch.targets), Context({})
    )
    wanted = torch.autograd.grad(exact, [wide[key] for key in model.parameter_names])
    torch.testing.assert_close(loss, exact.float(), rtol=1e-5, atol=1e-6)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other.float(), rtol=1e-4, atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 50), st.integers(1, 70), st.integers(2, 40), st.integers(1, 33))
def test_dense_layers_of_any_size(before: int, middle: int, classes: int, size: int) -> None:
    layers = nn.Sequential(nn.Linear(before, middle), nn.ReLU(), nn.Linear(middle, classes))
    model = Model(layers, (before,), classes)
    params, batch = params_of(model), a_batch(model, size)
    chain = chain_for(model, params)
    assert chain is not None
    _, got = found(chain, model, batch)
    loss = CrossEntropy()(model.forward, params, batch, Context({}))
    wanted = torch.autograd.grad(loss, [params[key] for key in model.parameter_names])
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


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


def test_the_proximal_term_is_added() -> None:
    model = a_model("cnn", (1, 8, 8), 10)
    params, batch, names = params_of(model), a_batch(model, 8), model.parameter_names
    anchor = {name: part.detach() + 0.5 for name, part in params.items()}
    objective = Proximal(CrossEntropy(), 0.3)
    chain = chain_of(model, Phase(objective, names), params, "fp32", 8)
    assert chain is not None
    loss, got = found(chain, model, batch, Context(anchor))
    wanted = objective(model.forward, params, batch, Context(anchor))
    torch.testing.assert_close(loss, wanted.detach())
    slopes = torch.autograd.grad(wanted, [params[name] for name in names])
    for one, other in zip(got, slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_other_work_is_torchs() -> None:
    model = a_model("cnn", (1, 8, 8), 10)
    params, names = params_of(model), model.parameter_names
    twice = Proximal(Proximal(CrossEntropy(), 0.1), 0.1)
    assert chain_of(model, Phase(twice, names), params, "fp32", 8) is None
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


@pytest.mark.parametrize(
    ("schedule", "frozen"),
    [
        (Schedule(epochs=2, batch_size=20, learning_rate=0.05), frozenset[str]()),
        (Schedule(batch_size=16, momentum=0.9, weight_decay=0.01), frozenset({"conv1.weight"})),
    ],
)
def test_a_training_ends_where_torchs_does(
    schedule: Schedule, frozen: frozenset[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    inputs = rng.standard_normal((50, 1, 28, 28), dtype=np.float32)
    samples = Samples(inputs, rng.integers(0, 10, 50))
    model = a_model("lenet5", (1, 28, 28), 10)
    job = Job(model.weights(), CrossEntropy(), schedule, seed=4, frozen=frozen)
    quick = Trainer(model, "cpu").train(job, samples)
    again = Trainer(model, "cpu").train(job, samples)
    monkeypatch.setattr("edgefed.learn.training.trainer.chain_of", lambda *_: None)
    slow = Trainer(model, "cpu").train(job, samples)
    assert quick.steps == slow.steps
    assert quick.loss == pytest.approx(slow.loss, rel=1e-5)
    for name, weights in quick.weights.items():
        assert weights.tobytes() == again.weights[name].tobytes()
        np.testing.assert_allclose(weights, slow.weights[name], rtol=1e-4, atol=1e-5)
    for name in frozen:
        assert quick.weights[name].tobytes() == job.weights[name].tobytes()

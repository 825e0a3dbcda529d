"""Mixing of hidden states: how models are split, and the two updates of a step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgefed.config.recipes.recipe import ModelSection
from edgefed.errors import DataError
from edgefed.learn.base.types import Array, Batch, Context, Job, Samples, Schedule
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build
from edgefed.learn.objectives.averaged_entries import DRAWN
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.fed_mix import FedMixObjective
from edgefed.learn.objectives.global_mix import GlobalMixObjective
from edgefed.learn.objectives.local_mix import LocalMixObjective
from edgefed.learn.objectives.manifold_mixing import ManifoldMixing
from edgefed.learn.objectives.naive_mix import NaiveMixObjective
from edgefed.learn.objectives.proximal import Proximal
from edgefed.learn.steps import capabilities
from edgefed.learn.training.trainer import Trainer
from edgefed.seeds import generator
from tests.learn.training.test_stacked import assert_alike

CLASSES = 5
SHAPES: dict[str, tuple[tuple[int, ...], dict[str, Any], int]] = {
    "cnn": ((1, 8, 8), {"width": 3, "hidden": 8}, 4),
    "lenet5": ((1, 16, 16), {}, 5),
    "vgg9": ((3, 8, 8), {"dropout_layout": "none"}, 9),
    "mlp": ((7,), {"hidden": [6, 5]}, 3),
    "lstm": ((4,), {"hidden": 5, "embedding": 3}, 2),
}
"""For each network: shape, settings, and layers."""


def model(name: str, seed: int = 1) -> Model:
    shape, keys, _ = SHAPES[name]
    made = build(ModelSection(name=name, **keys), shape, CLASSES, seed)
    made.module.double()
    return made


def params(made: Model) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in made.weights().items()}


def inputs(made: Model, count: int = 3, seed: int = 2) -> Array:
    rng = np.random.default_rng(seed)
    if made.vocabulary is not None:
        return rng.integers(0, made.vocabulary, (count, *made.shape))
    return rng.standard_normal((count, *made.shape))


def samples(made: Model, count: int = 6) -> Samples:
    labels = np.random.default_rng(5).integers(0, CLASSES, count)
    return Samples(inputs(made, count), labels)


@pytest.mark.parametrize("name", SHAPES)
def test_the_halves_make_the_whole(name: str) -> None:
    made, layers = model(name), SHAPES[name][2]
    weights, given = params(made), torch.from_numpy(inputs(made))
    expected = made.forward(weights, given)
    before: tuple[str, ...] = ()
    for split in range(1, layers):
        hidden = made.encode(weights, given, split)
        assert torch.equal(made.decode(weights, hidden, split), expected)
        encoder, decoder = made.halves(split)
        assert hidden.shape[1:] == decoder.shape and encoder.shape == made.shape
        assert encoder.names + decoder.names == made.names
        assert len(before) < len(encoder.names)
        before = encoder.names
        assert made.halves(split)[0] is encoder


def test_activations_belong_to_the_layer_they_follow() -> None:
    assert model("cnn").halves(1)[1].shape == (3, 4, 4)
    assert model("cnn").halves(2)[1].shape == (6 * 2 * 2,)
    hidden = model("vgg9").encode(params(model("vgg9")), torch.randn(2, 3, 8, 8).double(), 2)
    assert hidden.shape == (2, 64, 4, 4) and float(hidden.min()) == 0


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("past", [-1, 0, None])
def test_a_split_out_of_range_is_refused(name: str, past: int | None) -> None:
    layers = SHAPES[name][2]
    with pytest.raises(DataError, match="cannot be split after") as caught:
        model(name).halves(layers if past is None else past)
    assert caught.value.code == "model.split"
    assert caught.value.hint == f"choose split from 1 to {layers - 1}"


def test_a_model_that_is_no_chain_is_refused() -> None:
    other = build(ModelSection(name="resnet18"), (3, 8, 8), CLASSES, 1)
    with pytest.raises(DataError, match="not a chain of layers"):
        other.halves(1)
    single = Model(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), (4,), 2)
    with pytest.raises(DataError, match="cannot be split") as caught:
        single.halves(1)
    assert "single layer" in caught.value.hint


def entries(shape: tuple[int, ...], count: int = 4) -> dict[str, Array]:
    rng = np.random.default_rng(9)
    return {
        "inputs": rng.standard_normal((count, *shape)),
        "targets": rng.dirichlet(np.ones(CLASSES), count),
    }


def step(made: Model, objective: Any, extra: dict[str, Array], **more: Any) -> dict[str, Array]:
    """Return the weights after one step of the trainer on one batch."""
    rate = {"learning_rate": 0.1, "batch_size": 6, "epochs": 1, **more}
    job = Job(made.weights(), objective, Schedule(**rate), seed=3, extra=extra)
    return Trainer(made, "cpu").train(job, samples(made)).weights


def by_hand(
    made: Model, objective: ManifoldMixing, extra: dict[str, Array], hidden_entry: torch.Tensor
) -> dict[str, Array]:
    """Return the same by torch.autograd: NaiveMix on hidden states, then cross-entropy."""
    encoder, decoder = made.halves(objective.split)
    weights = {name: part.requires_grad_() for name, part in params(made).items()}
    data = samples(made)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(3))
    images, labels = torch.from_numpy(data.inputs)[order], torch.from_numpy(data.targets)[order]
    drawn = objective.draw(generator(3, "objective"), 6, extra)
    entry = int(drawn[DRAWN][0])
    assert isinstance(objective.inner, NaiveMixObjective)
    ratio = objective.inner.ratio
    hidden = encoder.forward(weights, images).detach()
    mixed = (1 - ratio) * hidden + ratio * hidden_entry[entry]
    logs = decoder.forward(weights, mixed).log_softmax(dim=1)
    wanted = (1 - ratio) * torch.eye(CLASSES).double()[labels] + ratio * torch.from_numpy(
        extra["targets"][entry]
    )
    descend(weights, -(wanted * logs).sum(dim=1).mean(), decoder.names)
    logs = made.forward(weights, images).log_softmax(dim=1)
    descend(weights, -logs[torch.arange(6), labels].mean(), made.names)
    return {name: part.detach().numpy() for name, part in weights.items()}


def descend(weights: dict[str, torch.Tensor], loss: torch.Tensor, names: tuple[str, ...]) -> None:
    slopes = torch.autograd.grad(loss, [weights[name] for name in names])
    for name, slope in zip(names, slopes, strict=True):
        weights[name] = (weights[name] - 0.1 * slope).detach().requires_grad_()
    for name in weights.keys() - set(names):
        weights[name] = weights[name].detach().requires_grad_()


@pytest.mark.parametrize("split", [1, 2, 3])
def test_a_step_moves_the_decoder_by_the_mixture_and_then_everything(split: int) -> None:
    made = model("cnn")
    extra = entries(made.halves(split)[1].shape)
    objective = ManifoldMixing(NaiveMixObjective(0.3), split)
    ours = step(made, objective, extra)
    theirs = by_hand(made, objective, extra, torch.from_numpy(extra["inputs"]))
    for name, array in ours.items():
        np.testing.assert_allclose(array, theirs[name], rtol=1e-10, atol=1e-12)


def test_averaged_tokens_are_averaged_embeddings() -> None:
    made = model("lstm")
    one_hot = np.eye(CLASSES)[np.random.default_rng(1).integers(0, CLASSES, (4, 3, 4))]
    extra = {**entries((1,)), "inputs": one_hot.mean(axis=1)}
    table = made.weights()["embedding.weight"]
    embedded = torch.from_numpy(np.stack([[row @ table for row in each] for each in one_hot]))
    objective = ManifoldMixing(NaiveMixObjective(0.3))
    ours = step(made, objective, extra)
    theirs = by_hand(made, objective, extra, embedded.mean(dim=1))
    for name, array in ours.items():
        np.testing.assert_allclose(array, theirs[name], rtol=1e-10, atol=1e-12)


def test_raw_tokens_are_one_hot_sequences() -> None:
    made = model("lstm")
    tokens = np.random.default_rng(1).integers(0, CLASSES, (4, 4))
    for inner in (GlobalMixObjective(ratio=0.3), FedMixObjective(0.3)):
        extra = {**entries((1,)), "inputs": tokens}
        one = step(made, ManifoldMixing(inner), extra)
        other = step(made, ManifoldMixing(inner), {**extra, "inputs": np.eye(CLASSES)[tokens]})
        for name, array in one.items():
            np.testing.assert_allclose(array, other[name], rtol=1e-9, atol=1e-12)


def test_averaged_tokens_take_the_embedding_s_kind_of_number() -> None:
    made = model("lstm")
    one_hot = np.eye(CLASSES)[np.random.default_rng(1).integers(0, CLASSES, (4, 4))]
    wide, narrow = (
        step(
            made,
            ManifoldMixing(NaiveMixObjective(0.3)),
            {**entries((1,)), "inputs": one_hot.astype(kind)},
        )
        for kind in (np.float64, np.float32)
    )
    for name, array in wide.items():
        np.testing.assert_array_equal(array, narrow[name])


def test_the_loss_of_a_step_is_that_of_the_second_update() -> None:
    made = model("mlp")
    data = samples(made)
    batch = Batch(torch.from_numpy(data.inputs), torch.from_numpy(data.targets))
    anchor = {name: part + 1 for name, part in params(made).items()}
    usual, context = Proximal(CrossEntropy(), 0.5), Context(anchor)
    wanted = usual(made.forward, params(made), batch, context)
    objective = ManifoldMixing(NaiveMixObjective(0.3), usual=usual)
    found = objective(made.forward, params(made), batch, context)
    assert torch.equal(found, wanted)


def first_update(made: Model, objective: Any, extra: dict[str, Array]) -> dict[str, Array]:
    """Return the weights after the step, but with the second update's gradients frozen away."""
    first, second = capabilities.phases(objective, made, made.parameter_names)
    assert second.trained == made.parameter_names

    class Only:
        def draw(self, *given: Any) -> dict[str, Array]:
            return capabilities.draw(objective, *given)

        def phases(self, *_: Any) -> tuple[capabilities.Phase, ...]:
            return (first,)

        def __call__(self, *_: Any) -> torch.Tensor:
            raise AssertionError("phases are what a step consists of")

    return step(made, Only(), extra)


@pytest.mark.parametrize(
    "inner", [NaiveMixObjective(0.3), FedMixObjective(0.3), LocalMixObjective()]
)
def test_gradients_reach_the_embedding_only_if_asked_for(inner: Any) -> None:
    made = model("lstm")
    one_hot = np.eye(CLASSES)[np.random.default_rng(1).integers(0, CLASSES, (4, 4))]
    extra = {**entries((1,)), "inputs": one_hot}
    before = made.weights()
    for reach in (False, True):
        after = first_update(made, ManifoldMixing(inner, embedding_grad=reach), extra)
        moved = not np.array_equal(after["embedding.weight"], before["embedding.weight"])
        assert moved is reach
        assert not np.array_equal(after["decoder.weight"], before["decoder.weight"])


def test_with_gradients_to_the_embedding_the_table_counts_twice() -> None:
    """Through the sequence's own tokens, and through the average's product with the table."""
    made = model("lstm")
    seldom = np.zeros((2, 4, CLASSES))
    seldom[..., 4] = 1
    extra = {**entries((1,), 2), "inputs": seldom}
    data = samples(made)
    assert 4 in data.inputs
    unused = Samples(np.minimum(data.inputs, 3), data.targets)
    job = Job(
        made.weights(),
        ManifoldMixing(NaiveMixObjective(0.3), 1, True),
        Schedule(1, 6),
        3,
        extra=extra,
    )
    after = Trainer(made, "cpu").train(job, unused).weights["embedding.weight"]
    assert not np.array_equal(after[4], made.weights()["embedding.weight"][4])


def test_frozen_weights_stay_and_a_frozen_decoder_leaves_one_update() -> None:
    made = model("mlp")
    objective = ManifoldMixing(NaiveMixObjective(0.2), 2)
    names = ("fc1.weight", "fc1.bias")
    assert [each.trained for each in objective.phases(made, names)] == [names]
    proximal = capabilities.phases(Proximal(objective, 0.5), made, made.parameter_names)
    assert [type(each.objective) for each in proximal] == [Proximal, Proximal]
    assert proximal[0].trained == ("out.weight", "out.bias")


def test_running_statistics_are_counted_once() -> None:
    layers = nn.Sequential(
        nn.Linear(7, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 4), nn.BatchNorm1d(4),
        nn.Linear(4, CLASSES),
    )  # fmt: skip
    made = Model(layers.double(), (7,), CLASSES)
    objective = ManifoldMixing(FedMixObjective(0.2), 1)
    mixed = step(made, objective, entries((6,)))
    plain = step(made, CrossEntropy(), {})
    assert mixed["1.num_batches_tracked"] == mixed["4.num_batches_tracked"] == 1
    np.testing.assert_allclose(mixed["1.running_mean"], plain["1.running_mean"], rtol=1e-12)


def test_each_update_has_a_momentum_of_its_own() -> None:
    made = model("mlp")
    extra = entries(made.halves(1)[1].shape)
    kept = {"momentum": 0.9, "epochs": 3}
    slow, fast = (
        step(made, ManifoldMixing(NaiveMixObjective(0.2)), extra, **each)
        for each in ({"epochs": 3}, kept)
    )
    assert not np.array_equal(slow["out.weight"], fast["out.weight"])
    job = Job(
        made.weights(),
        ManifoldMixing(NaiveMixObjective(0.2)),
        Schedule(3, 6, momentum=0.9),
        3,
        extra=extra,
    )
    assert_alike(made, [job, replace(job, seed=4)], [samples(made), samples(made)])


def test_an_lstm_is_stacked_as_one_by_one() -> None:
    made = model("lstm")
    one_hot = np.eye(CLASSES)[np.random.default_rng(1).integers(0, CLASSES, (4, 4))]
    extra = {**entries((1,)), "inputs": one_hot}
    for objective in (
        ManifoldMixing(FedMixObjective(0.2)),
        ManifoldMixing(FedMixObjective(0.2), embedding_grad=True),
    ):
        job = Job(made.weights(), objective, Schedule(1, 4), 3, extra=extra)
        assert_alike(made, [job, replace(job, seed=4)], [samples(made), samples(made)])


@pytest.mark.parametrize(
    ("name", "objective", "shape", "why"),
    [
        ("cnn", ManifoldMixing(FedMixObjective(0.1), 1), (1, 8, 8), "inputs are"),
        ("cnn", ManifoldMixing(FedMixObjective(0.1), 9), (1, 8, 8), "cannot be split after 9"),
        ("lstm", ManifoldMixing(FedMixObjective(0.1), 1), (4, 3), "inputs are"),
        ("lstm", ManifoldMixing(FedMixObjective(0.1), 2), (4, CLASSES), "cannot be split after 2"),
        ("lstm", FedMixObjective(0.1), (4, CLASSES), "tokens"),
    ],
)
def test_what_does_not_flow_there_is_refused(
    name: str, objective: Any, shape: tuple[int, ...], why: str
) -> None:
    with pytest.raises(DataError, match=why):
        step(model(name), objective, entries(shape))


def test_tokens_are_averaged_through_an_embedding_only() -> None:
    layers = nn.Sequential(nn.Embedding(9, 2), nn.Flatten(), nn.Linear(8, 6), nn.Linear(6, CLASSES))
    made = Model(layers.double(), (4,), CLASSES, vocabulary=9)
    with pytest.raises(DataError, match="through an embedding only") as caught:
        step(made, ManifoldMixing(NaiveMixObjective(0.1), 2), entries((6,)))
    assert (caught.value.code, caught.value.hint) == ("model.split", "set split = 1")
    after = step(made, ManifoldMixing(NaiveMixObjective(0.1), 1), entries((4, 9)))
    assert all(np.isfinite(array).all() for array in after.values())

"""FedMix: the properties that its formula has, in float64."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.learn.base.types import Batch
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.fed_mix import FedMixObjective
from edgefed.learn.objectives.global_mix import GlobalMixObjective
from edgefed.learn.objectives.naive_mix import NaiveMixObjective
from edgefed.learn.objectives.squared_error import SquaredError
from tests.learn.mixing import CLASSES, World, assert_equal, literal

NETWORKS: dict[str, dict[str, Any]] = {"mlp": {"hidden": [9, 7]}, "cnn": {"width": 3, "hidden": 8}}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("taylor", ["lam", "lam(1-lam)"])
def test_it_is_the_formula_term_by_term(name: str, taylor: Any) -> None:
    world = World(name, **NETWORKS[name])
    factor = 0.2 if taylor == "lam" else 0.2 * 0.8
    expected = literal(world, 0.2, entry=2, factor=factor)
    ours = world.both(FedMixObjective(0.2, taylor), world.context(2))
    assert_equal(ours, (expected.item(), world.gradients(expected)))


@pytest.mark.parametrize("name", NETWORKS)
def test_mixed_labels_stand_in_the_third_term_too(name: str) -> None:
    world, ratio = World(name, **NETWORKS[name]), 0.2
    labels = torch.nn.functional.one_hot(world.batch.targets, CLASSES).double()
    other = {key: torch.from_numpy(array)[1] for key, array in world.extra.items()}
    mixed = (1 - ratio) * labels + ratio * other["targets"]
    inputs = ((1 - ratio) * world.batch.inputs).requires_grad_()
    loss = torch.nn.functional.cross_entropy(world.model.forward(world.params, inputs), mixed)
    (slope,) = torch.autograd.grad(loss, inputs, create_graph=True)
    expected = loss + ratio * (slope * other["inputs"]).sum()
    ours = world.both(FedMixObjective(ratio, labels="mixed"), world.context(1))
    assert_equal(ours, (expected.item(), world.gradients(expected)))


@pytest.mark.parametrize(("labels", "pull"), [("own", True), ("mixed", False)])
def test_only_own_labels_pull_where_the_other_terms_are_least(labels: Any, pull: bool) -> None:
    """A linear model that answers with the mixed target already: only the third term moves it."""
    world, ratio = World("mlp", (3,), batch=1, hidden=[]), 0.2
    weight, bias = world.params.values()
    target = torch.from_numpy(world.extra["targets"])[0] * ratio
    target[world.batch.targets[0]] += 1 - ratio
    weight.data.zero_()
    bias.data.copy_(target.log())
    _, gradients = world.both(FedMixObjective(ratio, labels=labels))
    assert (max(part.abs().max().item() for part in gradients.values()) > 0.01) == pull
    if not pull:
        assert all(part.abs().max() < 1e-12 for part in gradients.values())


@settings(max_examples=25, deadline=None)
@given(
    ratio=st.floats(0.001, 1),
    batch=st.integers(1, 5),
    hidden=st.lists(st.integers(1, 6), max_size=3),
    seed=st.integers(0, 10_000),
)
def test_it_is_the_formula_whatever_the_network(
    ratio: float, batch: int, hidden: list[int], seed: int
) -> None:
    world = World("mlp", (3,), batch=batch, seed=seed, hidden=hidden)
    expected = literal(world, ratio)
    value, gradients = world.both(FedMixObjective(ratio))
    assert value == pytest.approx(expected.item(), rel=1e-11, abs=1e-12)
    for name, part in world.gradients(expected).items():
        torch.testing.assert_close(gradients[name], part, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("ratio", [0.0, 1e-14])
@pytest.mark.parametrize("mixing", [FedMixObjective, NaiveMixObjective])
def test_without_a_share_it_is_cross_entropy(mixing: Any, ratio: float) -> None:
    world = World("cnn", **NETWORKS["cnn"])
    assert_equal(world.both(mixing(ratio)), world.both(CrossEntropy()), 1e-11)
    if ratio == 0:
        assert torch.equal(world.loss(mixing(0.0)), world.loss(CrossEntropy()))


def test_the_average_of_entries_does_what_the_entries_do_on_average() -> None:
    world = World("cnn", entries=7, **NETWORKS["cnn"])
    each = [world.both(FedMixObjective(0.1), world.context(entry)) for entry in range(7)]
    value = sum(loss for loss, _ in each) / 7
    gradients = {
        name: torch.stack([found[name] for _, found in each]).mean(dim=0) for name in each[0][1]
    }
    world.extra = {name: array.mean(axis=0)[None] for name, array in world.extra.items()}
    assert_equal(world.both(FedMixObjective(0.1)), (value, gradients), 1e-12)


@pytest.mark.parametrize("taylor", ["lam", "lam(1-lam)"])
@pytest.mark.parametrize("labels", ["own", "mixed"])
def test_halving_the_share_quarters_the_distance_to_global_mixup(taylor: Any, labels: Any) -> None:
    """A network of tanh, as kinks spoil the order of a Taylor expansion."""
    world = World("mlp", hidden=[9, 7])
    for number in (1, 2):
        setattr(world.model.module, f"relu{number}", torch.nn.Tanh())
    count = len(world.batch.targets)

    def distance(ratio: float) -> float:
        raw = [
            world.loss(GlobalMixObjective(ratio=ratio), world.context([entry] * count, share=ratio))
            for entry in range(4)
        ]
        mixing = FedMixObjective(ratio, taylor, labels=labels)
        ours = [world.loss(mixing, world.context(entry)) for entry in range(4)]
        return (torch.stack(raw).mean() - torch.stack(ours).mean()).item()

    distances = [distance(2.0**-power) for power in range(6, 11)]
    assert abs(distances[0]) > 1e-7
    ratios = [one / other for one, other in pairwise(distances)]
    assert ratios[-1] == pytest.approx(4, rel=0.02)
    assert all(3 < ratio < 5 for ratio in ratios)


def test_a_linear_model_has_the_closed_form() -> None:
    """∂ℓ/∂x of a linear softmax is Wᵀ (softmax - y)."""
    world, ratio = World("mlp", (1, 8, 8), hidden=[]), 0.2
    weight, bias = world.params["out.weight"], world.params["out.bias"]
    inputs, other = world.batch.inputs.flatten(1), torch.from_numpy(world.extra["inputs"][0])
    scores = (1 - ratio) * inputs @ weight.T + bias
    wanted = torch.eye(CLASSES, dtype=torch.float64)[world.batch.targets]
    third = ((scores.softmax(dim=1) - wanted) @ weight @ other.flatten()).mean()
    mixed = (1 - ratio) * wanted + ratio * torch.from_numpy(world.extra["targets"][0])
    expected = -(mixed * scores.log_softmax(dim=1)).sum(dim=1).mean() + ratio * third
    assert_equal(world.both(FedMixObjective(ratio)), (expected.item(), world.gradients(expected)))


def test_soft_targets_of_one_class_are_labels() -> None:
    world = World("cnn", **NETWORKS["cnn"])
    hard = world.both(FedMixObjective(0.3))
    wanted = torch.eye(CLASSES, dtype=torch.float64)[world.batch.targets]
    world.batch = Batch(world.batch.inputs, wanted)
    assert_equal(hard, world.both(FedMixObjective(0.3)))


def test_with_squared_error_gradients_are_those_of_the_literal_terms() -> None:
    """And values too, but for λ (1-λ) (y - ȳ)², which no weight changes."""
    world, ratio = World("mlp", hidden=[9]), 0.2
    goals = torch.randn(6, CLASSES, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    inputs = world.batch.inputs
    world.batch = Batch(inputs, goals)
    other, target = (torch.from_numpy(world.extra[name][0]) for name in ("inputs", "targets"))
    at = ((1 - ratio) * inputs).requires_grad_()
    outputs = world.model.forward(world.params, at)
    first, second = (outputs - goals).square().mean(), (outputs - target).square().mean()
    (slope,) = torch.autograd.grad(first, at, create_graph=True)
    third = (slope * other).sum()
    expected = (1 - ratio) * first + ratio * second + ratio * third
    constant = ratio * (1 - ratio) * (goals - target).square().mean()
    ours = world.both(FedMixObjective(ratio, loss=SquaredError()))
    assert_equal(ours, ((expected - constant).item(), world.gradients(expected)))

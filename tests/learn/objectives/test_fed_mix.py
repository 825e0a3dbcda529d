"""FedMix: the properties that its formula has, in float64."""

from __future__ import annotations

from dataclasses import replace
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
from edgefed.learn.objectives.proximal import Proximal
from edgefed.learn.objectives.squared_error import SquaredError
from tests.learn.mixing import CLASSES, World, assert_equal, assert_same, literal

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


def test_naive_mix_of_an_average_is_not_the_average() -> None:
    """What sets FedMix apart: NaiveMix is not linear in the entry's inputs."""
    world = World("cnn", entries=7, **NETWORKS["cnn"])
    value = (
        sum(world.loss(NaiveMixObjective(0.3), world.context(entry)).item() for entry in range(7))
        / 7
    )
    world.extra = {name: array.mean(axis=0)[None] for name, array in world.extra.items()}
    assert abs(world.loss(NaiveMixObjective(0.3)).item() - value) > 1e-4


@pytest.mark.parametrize("taylor", ["lam", "lam(1-lam)"])
@pytest.mark.parametrize("labels", ["own", "mixed"])
def test_halving_the_share_quarters_the_distance_to_global_mixup(taylor: Any, labels: Any) -> None:
    """A network of tanh, as kinks spoil the order of a Taylor expansion."""
    world = smooth()
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


def smooth() -> World:
    """Return a world whose network has tanh for ReLU."""
    world = World("mlp", hidden=[9, 7])
    for number in (1, 2):
        setattr(world.model.module, f"relu{number}", torch.nn.Tanh())
    return world


@pytest.mark.parametrize("make", [smooth, lambda: World("cnn", width=3, hidden=8)])
def test_doubling_the_batch_changes_nothing(make: Any) -> None:
    world = make()
    once = world.both(FedMixObjective(0.3))
    inputs, targets = world.batch.inputs, world.batch.targets
    world.batch = Batch(torch.cat([inputs, inputs]), torch.cat([targets, targets]))
    assert_equal(world.both(FedMixObjective(0.3)), once)


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


def test_an_empty_entry_with_the_batchs_label_scales_the_inputs() -> None:
    world = World("cnn", **NETWORKS["cnn"])
    world.batch = Batch(world.batch.inputs, torch.full((6,), 2))
    world.extra["inputs"][0] = 0
    world.extra["targets"][0] = [0, 0, 1, 0, 0]
    ours = world.both(FedMixObjective(0.4))
    world.batch = Batch(0.6 * world.batch.inputs, world.batch.targets)
    assert_equal(ours, world.both(CrossEntropy()))


def test_soft_targets_of_one_class_are_labels() -> None:
    world = World("cnn", **NETWORKS["cnn"])
    hard = world.both(FedMixObjective(0.3))
    wanted = torch.eye(CLASSES, dtype=torch.float64)[world.batch.targets]
    world.batch = Batch(world.batch.inputs, wanted)
    assert_equal(hard, world.both(FedMixObjective(0.3)))


def test_it_carries_the_proximal_term() -> None:
    world = World("mlp", hidden=[4])
    anchor = {name: part.detach() + 1 for name, part in world.params.items()}
    context = replace(world.context(), anchor=anchor)
    plain = world.loss(FedMixObjective(0.1), context)
    count = sum(part.numel() for part in anchor.values())
    assert (
        world.loss(Proximal(FedMixObjective(0.1), 0.5), context) - plain
    ).item() == pytest.approx(0.25 * count)


def regression() -> World:
    world = World("mlp", hidden=[9])
    goals = torch.randn(6, CLASSES, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    world.batch = Batch(world.batch.inputs, goals)
    return world


def test_with_squared_error_gradients_are_those_of_the_literal_terms() -> None:
    """And values too, but for λ (1-λ) (y - ȳ)², which no weight changes."""
    world, ratio = regression(), 0.2
    inputs, goals = world.batch.inputs, world.batch.targets
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


def test_with_squared_error_it_is_linear_in_the_entries_too() -> None:
    """In gradients, and in the loss without the squares of targets, which is linear in them."""
    world, objective = regression(), FedMixObjective(0.2, loss=SquaredError())

    def linear(entry: int) -> tuple[float, dict[str, torch.Tensor]]:
        value, gradients = world.both(objective, world.context(entry))
        target = torch.from_numpy(world.extra["targets"][entry])
        mixed = 0.8 * world.batch.targets + 0.2 * target
        return value - float(mixed.square().mean()), gradients

    each = [linear(entry) for entry in range(4)]
    gradients = {
        name: torch.stack([found[name] for _, found in each]).mean(dim=0) for name in each[0][1]
    }
    world.extra = {name: array.mean(axis=0)[None] for name, array in world.extra.items()}
    assert_equal(linear(0), (sum(value for value, _ in each) / 4, gradients))


def test_the_entry_counts_and_the_third_term_matters() -> None:
    world = World("cnn", **NETWORKS["cnn"])
    one, other = (world.both(FedMixObjective(0.3), world.context(entry))[1] for entry in (0, 1))
    world.extra["inputs"][0] = 0
    without = world.both(FedMixObjective(0.3))[1]
    for wrong in (other, without):
        with pytest.raises(AssertionError):
            assert_same(one, wrong, 1e-3)

"""LocalMix, NaiveMix and GlobalMix; entries as they come, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from edgefed.config.recipes.recipe import ModelSection
from edgefed.errors import DataError, UsageError
from edgefed.learn.base.types import Batch, Context, Objective
from edgefed.learn.modeling.model_building import build
from edgefed.learn.objectives.averaged_entries import DRAWN, KEPT, entries
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.fed_mix import FedMixObjective
from edgefed.learn.objectives.global_mix import GlobalMixObjective
from edgefed.learn.objectives.local_mix import LocalMixObjective
from edgefed.learn.objectives.losses import Loss
from edgefed.learn.objectives.mixing import Mixed, Mixing
from edgefed.learn.objectives.naive_mix import NaiveMixObjective
from edgefed.learn.objectives.proximal import Proximal
from edgefed.learn.objectives.squared_error import SquaredError
from edgefed.learn.steps import capabilities
from tests.learn.mixing import CLASSES, World, assert_equal

MIXING: list[Objective] = [
    LocalMixObjective(0.7),
    NaiveMixObjective(0.2),
    FedMixObjective(0.2),
    GlobalMixObjective(0.7),
    GlobalMixObjective(ratio=0.2),
]


def one_hot(labels: torch.Tensor) -> torch.Tensor:
    return torch.eye(CLASSES, dtype=torch.float64)[labels]


def soft_loss(world: World, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    logs = world.model.forward(world.params, inputs).log_softmax(dim=1)
    return -(targets * logs).sum(dim=1).mean()


def test_naive_mix_is_equation_1() -> None:
    world, ratio = World("mlp", hidden=[6]), 0.3
    other, target = (torch.from_numpy(world.extra[name][1]) for name in ("inputs", "targets"))
    mixed = (1 - ratio) * world.batch.inputs + ratio * other
    own = functional.cross_entropy(world.model.forward(world.params, mixed), world.batch.targets)
    theirs = soft_loss(world, mixed, target.expand(6, -1))
    expected = (1 - ratio) * own + ratio * theirs
    ours = world.both(NaiveMixObjective(ratio), world.context(1))
    assert_equal(ours, (expected.item(), world.gradients(expected)))


def test_global_mixup_gives_each_sample_its_partner() -> None:
    world, share, partners = World("mlp", hidden=[6]), 0.35, [3, 0, 0, 2, 1, 3]
    other, target = (torch.from_numpy(world.extra[n][partners]) for n in ("inputs", "targets"))
    mixed = (1 - share) * world.batch.inputs + share * other
    targets = (1 - share) * one_hot(world.batch.targets) + share * target
    expected = soft_loss(world, mixed, targets)
    ours = world.both(GlobalMixObjective(), world.context(partners, share=share))
    assert_equal(ours, (expected.item(), world.gradients(expected)))


def test_local_mixup_is_mixup_with_the_batch_reordered() -> None:
    world, share, partners = World("mlp", hidden=[6]), 0.35, torch.tensor([2, 5, 1, 0, 4, 3])
    inputs, wanted = world.batch.inputs, one_hot(world.batch.targets)
    mixed = (1 - share) * inputs + share * inputs[partners]
    expected = soft_loss(world, mixed, (1 - share) * wanted + share * wanted[partners])
    drawn = {"share": torch.tensor(share, dtype=torch.float64), "partner": partners}
    context = Context({}, {}, drawn)
    assert_equal(
        world.both(LocalMixObjective(), context), (expected.item(), world.gradients(expected))
    )
    world.batch = Batch(inputs, wanted)
    assert world.loss(LocalMixObjective(), context).item() == pytest.approx(
        expected.item(), rel=1e-12
    )


@pytest.mark.parametrize("objective", MIXING[1:])
def test_bytes_are_unpacked_as_they_are_taken(objective: Any) -> None:
    world = World("cnn", width=3, hidden=8)
    codes = np.random.default_rng(2).integers(0, 256, (4, 1, 8, 8)).astype(np.uint8)
    scale, offset = np.array([0.02, 0.01, 0.03, 0.02]), np.array([-1.5, -1, 0, 2])
    objective = replace(objective, loss=CrossEntropy())
    packed = {**world.extra, "inputs": codes, "scale": scale, "offset": offset}
    values = offset[:, None, None, None] + scale[:, None, None, None] * codes
    world.extra = {**world.extra, "inputs": values}
    drawn = objective.draw(np.random.default_rng(1), 6, world.extra)
    context = world.context(drawn[DRAWN].tolist(), **{k: v for k, v in drawn.items() if k != DRAWN})
    plain = world.both(objective, context)
    extra = {name: torch.from_numpy(array) for name, array in packed.items()}
    assert_equal(plain, world.both(objective, replace(context, extra=extra)))
    objective.check(world.model, packed)


def test_only_what_is_taken_is_unpacked() -> None:
    extra = {
        "inputs": torch.arange(12, dtype=torch.uint8).reshape(4, 3),
        "targets": torch.eye(4),
        "scale": torch.tensor([0.1, 0.2, 0.5, 0.7]),
        "offset": torch.tensor([0.0, 2.0, 1.0, 3.0]),
    }
    like = torch.zeros(1, dtype=torch.float64)
    found = entries(Context({}, extra, {DRAWN: torch.tensor([2])}), like)
    assert found.inputs.tolist() == [[4.0, 4.5, 5.0]]
    assert found.targets.tolist() == [[0, 0, 1, 0]]
    assert found.inputs.dtype == found.targets.dtype == like.dtype


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), size=st.integers(1, 9), count=st.integers(1, 5))
def test_draws_are_in_range_and_shaped_by_the_batch(seed: int, size: int, count: int) -> None:
    extra = {"inputs": np.zeros((count, 3)), "targets": np.zeros((count, 2))}
    for objective in MIXING:
        drawn, again = (
            capabilities.draw(objective, np.random.default_rng(seed), size, extra) for _ in range(2)
        )
        assert all(np.array_equal(drawn[name], again[name]) for name in drawn)
        if "share" in drawn:
            assert drawn["share"].shape == () and 0 <= drawn["share"] <= 1
        if DRAWN in drawn:
            assert drawn[DRAWN].shape == (
                (size,) if isinstance(objective, GlobalMixObjective) else (1,)
            )
            assert set(drawn[DRAWN].tolist()) <= set(range(count))
        if "partner" in drawn:
            assert sorted(drawn["partner"].tolist()) == list(range(size))


@pytest.mark.parametrize("objective", MIXING[1:])
def test_what_is_left_out_is_never_drawn_and_the_rest_as_if_it_were_all(objective: Any) -> None:
    extra = {"inputs": np.zeros((6, 3)), "targets": np.zeros((6, 2))}
    kept = np.array([False, True, False, True, True, False])
    few = {name: array[kept] for name, array in extra.items()}
    for seed in range(20):
        drawn = objective.draw(np.random.default_rng(seed), 4, {**extra, KEPT: kept})[DRAWN]
        alone = objective.draw(np.random.default_rng(seed), 4, few)[DRAWN]
        np.testing.assert_array_equal(drawn, np.flatnonzero(kept)[alone])
        assert drawn.dtype == np.int64


def test_draws_have_their_distributions() -> None:
    extra = {"inputs": np.zeros((5, 3)), "targets": np.zeros((5, 2))}
    rng = np.random.default_rng(1)
    shares = [float(LocalMixObjective(0.3).draw(rng, 4, {})["share"]) for _ in range(4000)]
    # The variance of Beta(a, a) is 1 / (4 (2 a + 1)).
    assert np.mean(shares) == pytest.approx(0.5, abs=0.02)
    assert np.var(shares) == pytest.approx(1 / (4 * 1.6), rel=0.05)
    taken = [int(FedMixObjective(0.1).draw(rng, 4, extra)[DRAWN][0]) for _ in range(5000)]
    assert np.bincount(taken) == pytest.approx(np.full(5, 1000), rel=0.12)
    assert GlobalMixObjective(ratio=0.25).draw(rng, 4, extra)["share"] == 0.25


def test_global_mixup_draws_a_partner_for_each_sample_of_a_batch_alone() -> None:
    extra = {"inputs": np.zeros((5, 3)), "targets": np.zeros((5, 2))}
    batches = [
        GlobalMixObjective().draw(np.random.default_rng(seed), 40, extra)[DRAWN] for seed in (1, 2)
    ]
    assert all(set(partners.tolist()) == set(range(5)) for partners in batches)
    assert not np.array_equal(batches[0], batches[1])


def test_the_proximal_term_draws_and_checks_as_what_it_holds() -> None:
    world = World("mlp", hidden=[4])
    inner, outer = NaiveMixObjective(0.1), Proximal(NaiveMixObjective(0.1), 0.5)
    one, other = (
        capabilities.draw(each, np.random.default_rng(3), 6, world.extra) for each in (inner, outer)
    )
    assert one.keys() == other.keys() and np.array_equal(one[DRAWN], other[DRAWN])
    assert capabilities.draw(Proximal(CrossEntropy(), 0.5), np.random.default_rng(3), 6, {}) == {}
    with pytest.raises(DataError, match="none to mix with"):
        capabilities.check(outer, world.model, {})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: NaiveMixObjective(-0.1), "NaiveMix cannot mix with ratio = -0.1"),
        (lambda: FedMixObjective(1.01), "FedMix cannot mix with ratio = 1.01"),
        (lambda: FedMixObjective(float("nan")), "FedMix cannot mix with ratio = nan"),
        (lambda: GlobalMixObjective(ratio=2), "GlobalMix cannot mix with ratio = 2"),
        (lambda: GlobalMixObjective(alpha=0), "GlobalMix cannot draw .* alpha = 0"),
        (lambda: LocalMixObjective(-1), "LocalMix cannot draw .* alpha = -1"),
        (lambda: LocalMixObjective(float("inf")), "LocalMix cannot draw .* alpha = inf"),
    ],
)
def test_shares_out_of_range_are_refused(make: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        make()
    assert caught.value.code == "train.mixup"
    assert caught.value.hint


@dataclass(frozen=True)
class MixedAlong(Mixing):
    """Mixes the targets only, with others that are given, and has a third term."""

    other: torch.Tensor
    loss: Loss = field(default_factory=CrossEntropy)

    def mixed(self, batch: Batch, context: Context) -> Mixed:
        change = torch.ones_like(batch.inputs[:1])
        return Mixed(batch.inputs, batch.targets, self.other, 0.3, change, 0.2)


def test_labels_are_mixed_as_their_one_hot_targets() -> None:
    world, labels = World("mlp", hidden=[6]), torch.tensor([2, 0, 4, 1, 1, 3])
    assert_equal(
        world.both(MixedAlong(labels), Context({})),
        world.both(MixedAlong(one_hot(labels)), Context({})),
    )


def test_targets_are_mixed_in_their_own_precision() -> None:
    """Outputs in bf16 would round 0.7, the share of the own label, to 0.69921875."""
    mixed = Mixed(torch.zeros(1, 1), torch.tensor([1]), torch.tensor([[1.0, 0.0]]), 0.3)
    targets = mixed.targets_for(torch.zeros((1, 2), dtype=torch.bfloat16))
    assert targets.dtype == torch.float32
    assert targets.tolist() == [pytest.approx([0.3, 0.7], rel=1e-6)]


@pytest.mark.parametrize("objective", [LocalMixObjective(0.7), GlobalMixObjective(0.7)])
def test_a_drawn_share_is_of_the_batch_s_kind_of_number(objective: Any) -> None:
    """It is drawn in double precision, which no other way to the same loss would round alike."""
    inputs = torch.ones((4, 2))
    extra = {"inputs": np.ones((3, 2), np.float32), "targets": np.ones((3, 2), np.float32)}
    drawn = objective.draw(np.random.default_rng(1), 4, extra)
    context = Context(
        {},
        {name: torch.from_numpy(array) for name, array in extra.items()},
        {name: torch.from_numpy(array) for name, array in drawn.items()},
    )
    mixed = objective.mixed(Batch(inputs, torch.zeros(4, dtype=torch.int64)), context)
    assert context.draws["share"].dtype == torch.float64
    assert mixed.share.dtype == mixed.inputs.dtype == torch.float32


@pytest.mark.parametrize(
    ("settings", "said", "known"),
    [
        ({"taylor": "lambda"}, "no factor 'lambda'", "lam, lam(1-lam)"),
        ({"labels": "theirs"}, "no labels 'theirs'", "own, mixed"),
    ],
)
def test_a_factor_and_labels_that_do_not_exist_are_refused(
    settings: dict[str, Any], said: str, known: str
) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        FedMixObjective(0.1, **settings)
    assert caught.value.code == "train.mixup"
    assert caught.value.hint.endswith(known)


FITTING = {"inputs": np.zeros((2, 1, 8, 8)), "targets": np.zeros((2, CLASSES))}
PACKED = FITTING | {"inputs": np.zeros((2, 1, 8, 8), np.uint8)}


@pytest.mark.parametrize(
    ("extra", "why"),
    [
        ({}, "none to mix with"),
        ({name: array[:0] for name, array in FITTING.items()}, "none to mix"),
        (FITTING | {"inputs": np.zeros((2, 8, 8))}, "inputs are"),
        (FITTING | {"targets": np.zeros((3, CLASSES))}, "targets are"),
        (FITTING | {"targets": np.zeros(2)}, "targets are"),
        (FITTING | {KEPT: np.zeros(2, bool)}, "none to mix"),
        (FITTING | {KEPT: np.ones(3, bool)}, "says of 3 entries"),
        (FITTING | {"offset": np.zeros(2)}, "scale and offset"),
        (PACKED, "scale and offset"),
        (PACKED | {"scale": np.ones(2)}, "scale and offset"),
        (PACKED | {"scale": np.ones(2), "offset": np.zeros(())}, "no offset for each"),
    ],
)
@pytest.mark.parametrize("objective", MIXING[1:])
def test_entries_that_do_not_fit_are_refused(objective: Any, extra: Any, why: str) -> None:
    with pytest.raises(DataError, match=why) as caught:
        objective.check(World("mlp", hidden=[4]).model, extra)
    assert caught.value.code == "train.entries"
    assert caught.value.message.startswith(type(objective).__name__.removesuffix("Objective"))
    assert caught.value.hint


@pytest.mark.parametrize("objective", MIXING)
def test_tokens_are_refused(objective: Any) -> None:
    model = build(ModelSection(name="lstm", hidden=3), (4,), CLASSES, 1)
    with pytest.raises(DataError, match="tokens") as caught:
        objective.check(model, {})
    assert caught.value.code == "train.tokens" and "split = 1" in caught.value.hint
    assert caught.value.message.startswith(type(objective).__name__.removesuffix("Objective"))


def test_naive_mix_of_a_regression_has_the_gradients_of_both_terms() -> None:
    world, ratio = World("mlp", hidden=[6]), 0.3
    goals = torch.randn(6, CLASSES, dtype=torch.float64)
    world.batch = Batch(world.batch.inputs, goals)
    other, target = (torch.from_numpy(world.extra[name][1]) for name in ("inputs", "targets"))
    outputs = world.model.forward(world.params, (1 - ratio) * world.batch.inputs + ratio * other)
    own, theirs = (outputs - goals).square().mean(), (outputs - target).square().mean()
    expected = (1 - ratio) * own + ratio * theirs
    constant = ratio * (1 - ratio) * (goals - target).square().mean()
    ours = world.both(NaiveMixObjective(ratio, SquaredError()), world.context(1))
    assert_equal(ours, ((expected - constant).item(), world.gradients(expected)))


@pytest.mark.parametrize("objective", MIXING[1:])
def test_regression_is_mixed_too(objective: Any) -> None:
    world = World("mlp", hidden=[6])
    goals = torch.randn(6, CLASSES, dtype=torch.float64)
    world.batch = Batch(world.batch.inputs, goals)
    drawn = objective.draw(np.random.default_rng(1), 6, world.extra)
    context = world.context(drawn[DRAWN].tolist(), **{k: v for k, v in drawn.items() if k != DRAWN})
    loss = world.loss(replace(objective, loss=SquaredError()), context)
    assert loss.isfinite() and not torch.equal(loss, world.loss(SquaredError(), context))
    world.batch = Batch(world.batch.inputs, goals[:, :1])
    with pytest.raises(DataError, match="target for every output"):
        world.loss(SquaredError(), context)

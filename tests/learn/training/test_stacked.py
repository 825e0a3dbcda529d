"""Many clients in one batch give the same result as one after another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from edgefed.config.recipes.recipe import ModelSection
from edgefed.errors import DataError, UsageError
from edgefed.learn.base.augment import Augment
from edgefed.learn.base.types import (
    Batch,
    Context,
    Forward,
    Job,
    Params,
    Samples,
    Schedule,
    Trained,
)
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.proximal import Proximal
from edgefed.learn.samples.sample_order import batch_sizes
from edgefed.learn.training.stacked_batches import ticks
from edgefed.learn.training.stacked_trainer import StackedTrainer, can_stack
from edgefed.learn.training.trainer import Stopped, Trainer
from tests.learn import worlds
from tests.support.pairwise import pairwise

SIZES = (13, 4, 6, 20, 1, 13, 9)
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}


def clients(sizes: tuple[int, ...] = SIZES) -> list[Samples]:
    return [worlds.samples(size, seed) for seed, size in enumerate(sizes)]


def jobs(model: Model, count: int, schedule: Schedule | None = None, **more: Any) -> list[Job]:
    given = {"objective": CrossEntropy(), **more}
    weights = model.weights()
    return [
        Job(weights, schedule=schedule or Schedule(2, 6), seed=seed, **given)
        for seed in range(count)
    ]


def assert_alike(
    model: Model,
    work: list[Job],
    data: list[Samples],
    *,
    chunk: int = 32,
    device: str = "cpu",
    error: float = 0.0,
) -> None:
    """Assert that a stack and one client after another end alike, within a tolerance."""
    error = error or TOLERANCE[next(model.module.parameters()).dtype]
    stacked = StackedTrainer(model, device, chunk).train(work, data)
    trainer = Trainer(model, device)
    alone = [trainer.train(job, own) for job, own in zip(work, data, strict=True)]
    for ours, theirs in zip(stacked, alone, strict=True):
        assert (ours.samples, ours.steps) == (theirs.samples, theirs.steps)
        assert ours.loss == pytest.approx(theirs.loss, rel=10 * error)
        assert list(ours.weights) == list(theirs.weights)
        assert list(ours.variables) == list(theirs.variables)
        wanted = {**theirs.weights, **theirs.variables}
        for name, array in {**ours.weights, **ours.variables}.items():
            assert array.dtype == wanted[name].dtype
            np.testing.assert_allclose(array, wanted[name], rtol=error, atol=error)


@pytest.mark.parametrize(
    ("name", "kind", "schedule"),
    pairwise(
        ["mlp", "cnn"],
        [torch.float32, torch.float64],
        [
            Schedule(2, 6),
            Schedule(2, 6, momentum=0.9, weight_decay=0.1),
            Schedule(3, 6, max_steps=4),
            Schedule(1, 50, momentum=0.9),
        ],
    ),
)
def test_a_stack_ends_where_each_client_ends(
    name: str, kind: torch.dtype, schedule: Schedule
) -> None:
    model = worlds.model(name)
    model.module.to(kind)
    assert_alike(model, jobs(model, len(SIZES), schedule), clients())


def test_batch_normalisation_has_the_statistics_of_each_client() -> None:
    model = worlds.normalised_model()
    model.module.to(torch.float64)
    sizes = (13, 4, 6, 20, 2)
    schedule = Schedule(2, 6, learning_rate=0.01, momentum=0.5)
    assert_alike(model, jobs(model, len(sizes), schedule), clients(sizes))


def test_chunks_change_nothing() -> None:
    model = worlds.model("cnn")
    assert_alike(model, jobs(model, len(SIZES)), clients(), chunk=3)


def test_every_network_of_the_registry_can_be_stacked() -> None:
    small: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
        "lenet5-wide": ((1, 16, 16), {"channels": [2, 4], "hidden": 8}),
        "resnet20": ((1, 8, 8), {}),
        "vgg9": ((1, 8, 8), {"dropout_layout": "none"}),
        "lstm": ((4,), {"hidden": 3}),
    }
    for name, (shape, keys) in small.items():
        model = build(ModelSection(name=name, **keys), shape, worlds.CLASSES, 1)
        assert can_stack(model), name
        rng = np.random.default_rng(3)
        kind = np.float32 if model.vocabulary is None else np.int64
        data = [
            Samples(rng.integers(0, 3, (count, *shape)).astype(kind), rng.integers(0, 3, count))
            for count in (5, 3)
        ]
        schedule = Schedule(1, 3, learning_rate=0.01)
        assert_alike(model, jobs(model, 2, schedule), data)


def test_the_proximal_term_pulls_each_client_to_its_own_start() -> None:
    model = worlds.model()
    work = jobs(model, 4, Schedule(3, 6), objective=Proximal(CrossEntropy(), 0.5))
    assert_alike(model, work, clients()[:4])
    moved = [
        replace(job, weights={n: a + 0.01 * job.seed for n, a in job.weights.items()})
        for job in work
    ]
    assert_alike(model, moved, clients()[:4])


def pulled(forward: Forward, params: Params, batch: Batch, context: Context) -> torch.Tensor:
    """Return cross-entropy plus a product with the extras, which differ or are shared."""
    extra = (context.extra["own"] * context.extra["all"]).sum()
    return CrossEntropy()(forward, params, batch, context) + params["out.bias"].sum() * extra


def test_extras_may_be_each_clients_own_or_shared() -> None:
    model, shared = worlds.model(), np.array([0.5, 0.1], np.float32)
    work = [
        replace(job, extra={"own": np.array([job.seed, 1], np.float32), "all": shared})
        for job in jobs(model, 4, objective=pulled)
    ]
    assert_alike(model, work, clients()[:4])


def test_frozen_weights_and_augmentation_are_as_one_by_one() -> None:
    model = worlds.model("cnn")
    work = jobs(model, 4, frozen=frozenset({"conv1.weight"}), augment=Augment(padding=2, flip=True))
    assert_alike(model, work, clients()[:4])


def test_soft_and_hard_targets_and_other_schedules_are_stacked_apart() -> None:
    model, data = worlds.model(), clients((7, 8, 9, 5))
    data[1] = Samples(data[1].inputs, np.eye(3, dtype=np.float32)[data[1].targets])
    work = jobs(model, 4)
    work[2] = replace(work[2], schedule=Schedule(1, 4, learning_rate=0.2))
    assert_alike(model, work, data)


def test_bf16_is_near_fp32_and_not_it() -> None:
    model = worlds.model()
    trainer, data = StackedTrainer(model, "cpu"), clients((7, 8))
    full = trainer.train(jobs(model, 2, Schedule(2, 6)), data)
    half = trainer.train(jobs(model, 2, Schedule(2, 6, precision="bf16")), data)
    for one, two in zip(full, half, strict=True):
        assert not np.array_equal(one.weights["fc1.weight"], two.weights["fc1.weight"])
        np.testing.assert_allclose(one.weights["fc1.weight"], two.weights["fc1.weight"], atol=0.02)


def test_the_same_stack_ends_in_the_same_bits_and_dropout_differs_between_clients() -> None:
    model, data = worlds.model("mlp", dropout=0.5), clients((6, 6))
    same = [data[0], data[0]]
    work = jobs(model, 2, Schedule(1, 6))
    trainer = StackedTrainer(model, "cpu")
    first, again = trainer.train(work, same), trainer.train(work, same)
    for one, two in zip(first, again, strict=True):
        assert all(np.array_equal(one.weights[n], two.weights[n]) for n in one.weights)
    alone = [replace(work[0]), replace(work[0])]
    left, right = trainer.train(alone, same)
    assert not np.array_equal(left.weights["fc1.weight"], right.weights["fc1.weight"])


def test_a_stack_drops_otherwise_under_other_seeds() -> None:
    """One sample a client has no order that a shuffle could change."""
    model, data = worlds.model("mlp", dropout=0.5), [worlds.samples(1), worlds.samples(1)]
    seeds = ((1, 2), (1, 2), (3, 4), (1, 4))
    one, again, other, half = (
        StackedTrainer(model, "cpu").train([worlds.job(model, seed=seed) for seed in each], data)
        for each in seeds
    )
    first, *others = (found[0].weights["fc1.weight"] for found in (one, again, other, half))
    assert [np.array_equal(first, each) for each in others] == [True, False, False]


def test_dropout_draws_from_one_distribution_together_and_alone() -> None:
    """The mean of 300 clients' weights, and their spread, are those of clients trained alone."""
    model, own = worlds.model("mlp", hidden=[6], dropout=0.4), worlds.samples(6, 2)
    work = jobs(model, 300, Schedule(1, 6, learning_rate=0.5))
    together = StackedTrainer(model, "cpu", 100).train(work, [own] * len(work))
    trainer = Trainer(model, "cpu")
    alone = [trainer.train(job, own) for job in work]
    for name in ("fc1.weight", "out.weight"):
        ours, theirs = (
            np.stack([each.weights[name] for each in done]) for done in (together, alone)
        )
        spread = np.sqrt((ours.var(axis=0) + theirs.var(axis=0)) / len(work))
        off = np.abs(ours.mean(axis=0) - theirs.mean(axis=0))
        assert (off <= 5 * spread + 1e-7).all()
        assert ours.std(axis=0).mean() == pytest.approx(theirs.std(axis=0).mean(), rel=0.05)
    assert len({each.weights["fc1.weight"].tobytes() for each in together}) == len(work)


def test_a_client_that_cannot_be_trained_does_not_keep_the_others_from_it() -> None:
    model = worlds.model()
    data = [*clients((7, 0)), worlds.samples(8), worlds.samples(9)]
    data[2] = Samples(data[2].inputs * np.float32(1e30), data[2].targets)
    work = jobs(model, 4)
    stacked = StackedTrainer(model, "cpu")
    results = stacked.attempt(work, data)
    codes = [result.code if isinstance(result, DataError) else "" for result in results]
    assert codes == ["", "data.empty", "train.diverged", ""]
    for place in (0, 3):
        ours, theirs = results[place], Trainer(model, "cpu").train(work[place], data[place])
        assert isinstance(ours, Trained)
        np.testing.assert_allclose(
            ours.weights["out.bias"], theirs.weights["out.bias"], rtol=2e-5, atol=2e-6
        )
    with pytest.raises(DataError, match="no samples"):
        stacked.train(work, data)


def test_stop_ends_a_stack_before_its_next_step() -> None:
    model, asked = worlds.model(), list[int]()

    def stop() -> bool:
        asked.append(1)
        return len(asked) == 3

    with pytest.raises(Stopped):
        StackedTrainer(model, "cpu").attempt(jobs(model, 2, Schedule(9, 2)), clients((7, 8)), stop)
    assert len(asked) == 3


def test_training_leaves_the_models_weights_and_the_global_generator_alone() -> None:
    model = worlds.model("mlp", dropout=0.5)
    before = model.weights()
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    StackedTrainer(model, "cpu").train(jobs(model, 2), clients((7, 8)))
    assert torch.equal(torch.rand(2), expected)
    assert all(np.array_equal(array, before[name]) for name, array in model.weights().items())


class Counting(nn.Module):
    """Turns a value into a Python number, which no stack can."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(64, worlds.CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        flat = inputs.flatten(1)
        scores: torch.Tensor = self.out(flat * (1 + float(flat.sum() > 1e9)))
        return scores


def test_a_model_that_cannot_be_stacked_says_why() -> None:
    cumulative = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64, momentum=None), nn.Linear(64, 3))
    for module in (Counting(), cumulative):
        model = Model(module, worlds.SHAPE, worlds.CLASSES)
        assert not can_stack(model)
        with pytest.raises(UsageError, match="item") as caught:
            StackedTrainer(model, "cpu")
        assert caught.value.code == "train.stack"
    with pytest.raises(UsageError, match="at least one client"):
        StackedTrainer(worlds.model(), "cpu", chunk=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_on_a_gpu_a_stack_ends_where_each_client_ends(name: str) -> None:
    model = worlds.model(name)
    schedule = Schedule(2, 6, momentum=0.9)
    assert_alike(model, jobs(model, len(SIZES), schedule), clients(), device="cuda")


@settings(max_examples=30, deadline=None)
@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    size=st.integers(1, 9),
    pairs=st.booleans(),
)
def test_ticks_cover_every_sample_of_every_client_once_and_in_order(
    counts: list[int], size: int, pairs: bool
) -> None:
    schedule = Schedule(1, size)
    plans = [batch_sizes(count, schedule, pairs=pairs) for count in counts]
    at = [0] * len(counts)
    for tick in ticks(plans, size):
        assert tick.clients == sorted(set(tick.clients))
        for number, start in zip(tick.clients, tick.starts, strict=True):
            assert at[number] == start
            at[number] += tick.size
    assert at == counts

"""Training with objectives that draw: repeatable, and in a stack as one by one."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from edgefed.learn.base.types import Array, Batch, Context, Forward, Objective, Params, Schedule
from edgefed.learn.objectives.averaged_entries import KEPT
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.fed_mix import FedMixObjective
from edgefed.learn.objectives.global_mix import GlobalMixObjective
from edgefed.learn.objectives.local_mix import LocalMixObjective
from edgefed.learn.objectives.manifold_mixing import ManifoldMixing
from edgefed.learn.objectives.naive_mix import NaiveMixObjective
from edgefed.learn.objectives.proximal import Proximal
from edgefed.learn.samples.extras_cache import ExtrasCache
from edgefed.learn.training.stacked_trainer import StackedTrainer
from edgefed.learn.training.trainer import Trainer
from tests.learn import worlds
from tests.learn.objectives.test_chain_mixing import an_extra
from tests.learn.training.test_stacked import SIZES, assert_alike, clients, jobs

MIXING: dict[str, Objective] = {
    "local": LocalMixObjective(0.8),
    "naive": NaiveMixObjective(0.2),
    "fedmix": FedMixObjective(0.2),
    "global": GlobalMixObjective(0.8),
    "proximal": Proximal(FedMixObjective(0.2), 0.3),
    "hidden": ManifoldMixing(FedMixObjective(0.2), split=1),
    "hidden proximal": Proximal(ManifoldMixing(NaiveMixObjective(0.2), split=1), 0.3),
}


def fitting(objective: Objective, name: str) -> dict[str, Array]:
    """Return extras of the inputs' shape, or of the hidden states'."""
    model = worlds.model("cnn")
    return an_extra(model.halves(1)[1] if name.startswith("hidden") else model)


@pytest.mark.parametrize("name", MIXING)
def test_a_stack_draws_what_each_client_draws(name: str) -> None:
    model = worlds.model("cnn")
    model.module.to(torch.float64)
    shared = fitting(MIXING[name], name)
    schedule = Schedule(2, 6, learning_rate=0.02, momentum=0.5)
    work = jobs(model, len(SIZES), schedule, objective=MIXING[name], extra=shared)
    assert_alike(model, work, clients())


def test_a_stack_takes_each_clients_own_entries_and_bytes() -> None:
    model = worlds.model("cnn")
    work = jobs(model, 4, objective=FedMixObjective(0.2))
    own = [replace(job, extra=an_extra(model, seed=job.seed)) for job in work]
    assert_alike(model, own, clients()[:4])
    codes = np.random.default_rng(1).integers(0, 256, (5, *worlds.SHAPE)).astype(np.uint8)
    packed = {"scale": np.full(5, 0.01, np.float32), "offset": np.arange(5, dtype=np.float32) - 3}
    shared = {**an_extra(model), "inputs": codes, **packed}
    assert_alike(model, [replace(job, extra=shared) for job in work], clients()[:4])


@pytest.mark.parametrize("name", ["global", "hidden"])
def test_clients_that_leave_out_other_entries_train_in_one_stack(name: str) -> None:
    """And as if the others' entries were all that there are."""
    model, shared = worlds.model("cnn"), fitting(MIXING[name], name)
    kept = [np.arange(5) != number for number in range(4)]
    work = jobs(model, 4, objective=MIXING[name], extra=shared)
    apart = [replace(job, extra={**shared, KEPT: own}) for job, own in zip(work, kept, strict=True)]
    assert_alike(model, apart, clients()[:4])
    few = [
        replace(job, extra={name: array[own] for name, array in shared.items()})
        for job, own in zip(work, kept, strict=True)
    ]
    trainer = Trainer(worlds.model("cnn"), "cpu")
    for one, other, data in zip(apart, few, clients()[:4], strict=True):
        found, wanted = trainer.train(one, data).weights, trainer.train(other, data).weights
        assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("name", MIXING)
def test_the_same_job_ends_in_the_same_bits_and_another_seed_elsewhere(name: str) -> None:
    data, shared = worlds.samples(13), fitting(MIXING[name], name)
    model = worlds.model("cnn", dropout=0.3)
    job = replace(worlds.job(model, objective=MIXING[name]), extra=shared)
    trainer = Trainer(model, "cpu")
    first, again = trainer.train(job, data), trainer.train(job, data)
    afresh = Trainer(worlds.model("cnn", dropout=0.3), "cpu").train(job, data)
    for other in (again, afresh):
        assert all(np.array_equal(first.weights[n], other.weights[n]) for n in first.weights)
    moved = trainer.train(replace(job, seed=99), data)
    assert not np.array_equal(first.weights["fc2.bias"], moved.weights["fc2.bias"])


class Recorder:
    """An objective that remembers what it was given."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def draw(
        self, generator: np.random.Generator, size: int, extra: Mapping[str, Array]
    ) -> dict[str, Array]:
        return {"number": generator.integers(len(extra["inputs"]), size=1)}

    def __call__(
        self, forward: Forward, params: Params, batch: Batch, context: Context
    ) -> torch.Tensor:
        self.seen.append(int(context.draws["number"]))
        return CrossEntropy()(forward, params, batch, context)


class Recorded:
    """An objective that remembers what another one draws."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.seen: list[bytes] = []

    def draw(
        self, generator: np.random.Generator, size: int, extra: Mapping[str, Array]
    ) -> dict[str, Array]:
        drawn: dict[str, Array] = self.inner.draw(generator, size, extra)
        self.seen.append(b"".join(np.asarray(each).tobytes() for each in drawn.values()))
        return drawn

    def __call__(
        self, forward: Forward, params: Params, batch: Batch, context: Context
    ) -> torch.Tensor:
        return CrossEntropy()(forward, params, batch, context)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("name", MIXING)
def test_what_is_drawn_is_the_seeds_whatever_the_order_of_samples(
    name: str, together: bool
) -> None:
    """One sample a device has no order that a shuffle could change."""
    model, shared = worlds.model("cnn"), fitting(MIXING[name], name)

    def drawn(seed: int) -> list[bytes]:
        recorded = Recorded(MIXING[name])
        job = worlds.job(model, Schedule(8, 4), objective=recorded, seed=seed)
        job, data = replace(job, extra=shared), worlds.samples(1)
        if together:
            StackedTrainer(model, "cpu").train([job], [data])
        else:
            Trainer(model, "cpu").train(job, data)
        return recorded.seen

    one, again, other = drawn(5), drawn(5), drawn(6)
    assert len(one) == 8 and len(set(one)) > 1
    assert one == again != other


def test_a_step_draws_once_and_only_what_its_objective_asks_for() -> None:
    model, recorder, data = worlds.model(), Recorder(), worlds.samples(13)
    job = replace(worlds.job(model, Schedule(3, 4), objective=recorder), extra=an_extra(model, 50))
    drawn = Trainer(model, "cpu").train(job, data)
    assert len(recorder.seen) == drawn.steps == 12
    assert len(set(recorder.seen)) > 6
    plain = Trainer(model, "cpu").train(replace(job, objective=CrossEntropy(), extra={}), data)
    for name, weights in plain.weights.items():  # plain cross-entropy may be computed natively
        np.testing.assert_allclose(drawn.weights[name], weights, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("name", "last"), [("cnn", "fc2.weight"), ("resnet20", "fc.weight")])
def test_bf16_is_near_fp32(name: str, last: str) -> None:
    model = worlds.model(name)
    job = replace(
        worlds.job(model, Schedule(1, 6), objective=FedMixObjective(0.2)), extra=an_extra(model)
    )
    half = replace(job, schedule=replace(job.schedule, precision="bf16"))
    one, two = (Trainer(model, "cpu").train(each, worlds.samples(12)) for each in (job, half))
    assert not np.array_equal(one.weights[last], two.weights[last])
    np.testing.assert_allclose(one.weights[last], two.weights[last], atol=0.02)


def frozen_array(seed: int = 1) -> Array:
    array: Any = np.random.default_rng(seed).standard_normal(7)
    array.flags.writeable = False
    return np.asarray(array)


def test_an_extra_is_put_on_the_device_once_and_forgotten_with_its_array() -> None:
    extras = ExtrasCache(torch.device("cpu"))
    array, other = frozen_array(), frozen_array(2)
    loaded = extras.all({"a": array, "b": other})
    again = extras.get(array)
    assert again is loaded["a"] and loaded["b"] is not loaded["a"]
    assert torch.equal(again, torch.tensor(array)) and again.dtype == torch.float64
    assert len(extras._loaded) == 2
    del array
    gc.collect()
    assert len(extras._loaded) == 1


def test_a_trainer_keeps_extras_between_jobs() -> None:
    model = worlds.model()
    shared = {name: array.copy() for name, array in an_extra(model).items()}
    for array in shared.values():
        array.flags.writeable = False
    trainer = Trainer(model, "cpu")
    job = replace(worlds.job(model, objective=NaiveMixObjective(0.1)), extra=shared)
    trainer.train(job, worlds.samples(5))
    before = {name: trainer.extras.get(array) for name, array in shared.items()}
    trainer.train(replace(job, seed=2), worlds.samples(6))
    assert all(trainer.extras.get(shared[name]) is tensor for name, tensor in before.items())


def test_memory_that_torch_can_share_is_shared() -> None:
    array = np.arange(4.0)
    tensor = ExtrasCache(torch.device("cpu")).get(array)
    array[0] = 9
    assert tensor.tolist() == [9, 1, 2, 3]
    turned = np.arange(4.0)[::-1]
    assert ExtrasCache(torch.device("cpu")).get(turned).tolist() == [3, 2, 1, 0]

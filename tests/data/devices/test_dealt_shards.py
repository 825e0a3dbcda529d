"""Shards of very many devices are copied when they are read, and are the same as any others."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgefed.api.simulate import simulate
from edgefed.data.base.types import Dataset, Shard
from edgefed.data.devices import partition
from edgefed.data.devices.dealt_shards import MANY_DEVICES, DealtShards, outlines
from edgefed.data.devices.partition import deal
from edgefed.files.samples import Samples
from edgefed.process.clock import SystemClock
from edgefed.simulator import executors
from edgefed.simulator.device_policies import with_policies
from edgefed.simulator.executors import Sequential
from edgefed.simulator.local_fleet import LocalFleet
from edgefed.wire.blobs import BlobCache
from tests.data.helpers import section

NAMES = tuple("abcd")


def _dataset(samples: int = 240, values: int = 6) -> Dataset:
    rng = np.random.default_rng(1)
    inputs = rng.standard_normal((samples, values)).astype(np.float32)
    columns = {"site": np.arange(samples) % 7}
    held = Samples(inputs, rng.permutation(np.arange(samples) % 4), columns)
    return Dataset(held, held, 4, (values,), class_names=NAMES)


def _same(one: Shard, other: Shard) -> bool:
    alike = replace(one, train=other.train, test=other.test)
    parts = ((one.train, other.train), (one.test, other.test))
    return vars(alike) == vars(other) and all(
        a.inputs.dtype == b.inputs.dtype
        and np.array_equal(a.inputs, b.inputs)
        and np.array_equal(a.targets, b.targets)
        and np.array_equal(a.columns["site"], b.columns["site"])
        and a.scale == b.scale
        for a, b in parts
    )


@pytest.mark.parametrize(
    "keys", [{"partition": "iid"}, {"partition": "dirichlet", "alpha": 1.0, "min_samples": 2}]
)
@pytest.mark.parametrize("parts", [1, 3])
def test_they_equal_shards_that_are_dealt_at_once(
    keys: dict[str, object], parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = section(**keys, parts_per_device=parts)
    at_once = deal(_dataset(), chosen, 8, 0, seed=3)
    monkeypatch.setattr(partition, "MANY_DEVICES", 8)
    dealt = deal(_dataset(), chosen, 8, 0, seed=3)
    assert isinstance(at_once, tuple) and isinstance(dealt, DealtShards)
    assert len(dealt) == 8 and all(map(_same, dealt, at_once))
    assert all(map(_same, dealt[2:7:2], at_once[2:7:2])) and len(dealt[2:7:2]) == 3
    for outline, shard in zip(outlines(dealt), outlines(at_once), strict=True):
        assert outline.train.inputs.shape == (0, 6)
        assert _same(
            replace(outline, train=replace(outline.train, inputs=shard.train.inputs)), shard
        )


def test_transformed_and_split_shards_are_dealt_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "MANY_DEVICES", 8)
    assert isinstance(deal(_dataset(), section(partition="iid"), 7, 0, seed=3), tuple)
    assert isinstance(deal(_dataset(), section(partition="iid"), 8, 0.5, seed=3), tuple)
    turned = section(partition="iid", transform="permutation")
    assert isinstance(deal(_dataset(), turned, 8, 0, seed=3), tuple)


def test_a_fleet_of_many_devices_copies_no_inputs(tmp_path: Path) -> None:
    dataset = _dataset(2 * MANY_DEVICES, 300)
    tracemalloc.start()
    try:
        shards = deal(dataset, section(partition="iid"), MANY_DEVICES, 0, seed=1)
        cache = BlobCache(tmp_path, 1 << 20)
        fleet = LocalFleet(shards, cache, SystemClock(), executor=Sequential(shards))
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert {(member.samples, member.shape) for member in fleet.roster()} == {(2, (300,))}
    assert taken < dataset.train.inputs.nbytes / 2


def test_a_share_of_the_devices_gets_a_policy_against_averages() -> None:
    shards = deal(_dataset(), section(partition="iid"), 8, 0, seed=3)
    assert with_policies(shards, 1.0, seed=1) is shards
    some = with_policies(shards, 0.75, seed=1)
    assert [shard.policy.share_means for shard in some].count(False) == 2
    assert all(one.train is other.train for one, other in zip(some, shards, strict=True))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_has_the_same_digest_however_shards_are_dealt(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = {
        "seed": 2,
        "model": {"name": "mlp", "hidden": [4]},
        "data": {"name": "digits", "partition": "dirichlet", "limit": 120},
        "rounds": {"count": 2, "cohort": 4},
        "simulation": {"devices": 6, "workers": workers},
    }
    at_once = simulate(recipe)
    monkeypatch.setattr(partition, "MANY_DEVICES", 6)
    monkeypatch.setattr(executors, "KEPT_WORKERS", 1)
    assert simulate(recipe).weights_digest == at_once.weights_digest

"""Label bounties among virtual devices: the same bits with every executor, and after any cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from edgefed.algorithms.bounties.bounty_records import BountyRecords
from edgefed.algorithms.interface.member import Member, Roster
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.rounds.engine import Engine
from edgefed.coordinator.storage.run_store import Store
from edgefed.data.base.types import Dataset, Shard, no_samples
from edgefed.sharing.bounty_report import Bounty
from edgefed.sharing.policy import Policy
from edgefed.simulator.executors import Executor, Sequential
from edgefed.simulator.local_fleet import LocalFleet
from edgefed.simulator.run import SimulationResult
from edgefed.simulator.stacked_executor import StackedExecutor
from edgefed.wire.messages import Task
from tests.algorithms.bounty_play import IMAGE, LABELS, images, only
from tests.coordinator.fleets import TamperedFleet
from tests.run_fixture import World
from tests.run_fixture import recipe as small_recipe
from tests.simulator.work import finished, made_by

TOLERANCE = 1e-5
"""Of every weight, between devices that train one by one and at once."""


def from_task(given: Task) -> np.random.Generator:
    return np.random.default_rng([given.index, given.seed])


def one_by_one(shards: Sequence[Shard]) -> Executor:
    return Sequential(shards, private_randomness=from_task)


def at_once(shards: Sequence[Shard]) -> Executor:
    return StackedExecutor(shards, private_randomness=from_task)


def digits(name: str = "fedavg", **labels: Any) -> Recipe:
    """Return a run of ten devices with a digit each."""
    return Recipe.model_validate(
        {
            "seed": 5,
            "model": {"name": "mlp", "hidden": [8]},
            "data": {
                "name": "digits",
                "limit": 600,
                "partition": "classes",
                "classes_per_device": 1,
            },
            "algorithm": {"name": name},
            "training": {"batch_size": 32, "learning_rate": 0.1},
            "rounds": {"count": 1},
            "labels": {"supplement": 0.1, "noise": "white", **labels},
            "simulation": {"devices": 10},
            "wire": {"downlink": "fp32", "uplink": "fp32"},
        }
    )


def simulate(
    plan: Recipe, folder: Path, executor: Callable[[Sequence[Shard]], Executor] = one_by_one
) -> SimulationResult:
    return finished(plan, folder, executors=made_by(executor))


def bounties(result: SimulationResult) -> tuple[Bounty, ...]:
    """Return the bounties of a run from its checkpoint."""
    store = Store(result.folder.parents[1], durable=False)
    try:
        checkpoint = store.checkpoint(result.record.run)
        assert checkpoint is not None
        return BountyRecords.of(checkpoint.state).bounties
    finally:
        store.close()


def test_devices_at_once_get_the_same_mixes(tmp_path: Path) -> None:
    plan = digits("fedlc")
    one, stacked = (
        simulate(plan, tmp_path / str(number), executor)
        for number, executor in enumerate([one_by_one, at_once])
    )
    assert bounties(one) == bounties(stacked)
    mine, theirs = (load_file(each.folder / "model.safetensors") for each in (one, stacked))
    for key, array in mine.items():
        np.testing.assert_allclose(theirs[key], array, atol=TOLERANCE)
    again = simulate(plan, tmp_path / "again", at_once)
    assert again.record.weights_digest == stacked.record.weights_digest


def test_others_of_all_devices_come_from_a_pool(tmp_path: Path) -> None:
    others = {}
    for kind in ("any", "global", "other_classes"):
        result = simulate(digits(others=kind), tmp_path / kind)
        others[kind] = result.record.weights_digest
        received = sum(each.received for each in bounties(result))
        assert (received == 0) == (kind == "other_classes"), "a device has one label only"
    assert len(set(others.values())) == 3


def test_a_pool_of_standardised_images_is_mixed_as_pixels(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    path = tmp_path / "data.npz"
    targets = np.arange(60) % 3
    np.savez(
        path,
        x_train=rng.integers(0, 256, (60, 8, 8), np.uint8),
        y_train=targets,
        x_test=rng.integers(0, 256, (9, 8, 8), np.uint8),
        y_test=targets[:9],
    )
    data = {"name": "npz", "path": str(path), "partition": "classes", "classes_per_device": 1}
    plan = digits(others="global").model_dump(mode="json")
    plan = {**plan, "data": {**data, "normalize": True}, "simulation": {"devices": 3}}
    found = bounties(simulate(Recipe.model_validate(plan), tmp_path / "state"))
    assert {each.received == each.mixes > 0 for each in found} == {True}


# -- the engine -----------------------------------------------------------------------------------


def parts() -> list[Shard]:
    """Return one device for each label, which has only this label; the fourth tells no labels."""
    shards = [Shard(only(label, 6), images([1] * LABELS, 9), LABELS) for label in range(LABELS)]
    shards[3] = replace(shards[3], policy=Policy(share_labels=False))
    return shards


def world(folder: Path, shards: Sequence[Shard] | None = None, **sections: Any) -> World:
    """Return a run with injected randomness, of images."""
    labels = {"supplement": 1.0, "noise": "white", **sections.pop("labels", {})}
    plan = small_recipe(labels=labels, rounds={"count": 2, "retries": 0}, **sections)
    given = parts() if shards is None else list(shards)
    here = World(folder, plan, given)
    here.dataset = Dataset(no_samples(IMAGE), images([2] * LABELS, 99), LABELS, IMAGE)
    here.devices = LocalFleet(given, here.cache, here.clock, executor=one_by_one(given))
    return here


def ended(engine: Engine) -> str:
    record = engine.run()
    assert record.status == "finished", record.reason
    return record.weights_digest


class Leaving(TamperedFleet):
    """A fleet some of whose devices are gone once an exchange is over."""

    gone: tuple[str, ...] = ()
    after = ""

    def roster(self) -> Roster:
        members: tuple[Member, ...] = super().roster()
        left = any(each.name == self.after for each in self.asked)
        return tuple(each for each in members if not (left and each.device in self.gone))


def test_the_engine_copes_with_an_exchange_without_questions(tmp_path: Path) -> None:
    """Every device that offered mixes left."""
    shards = [Shard(only(label, 6), images([1] * LABELS, 9), LABELS) for label in (0, 1)]
    shards.append(
        Shard(
            images([3] * LABELS, 3),
            images([1] * LABELS, 9),
            LABELS,
            policy=Policy(share_mixes=False),
        )
    )
    here = world(tmp_path, shards)
    fleet = Leaving(here.devices)
    fleet.gone, fleet.after = ("device-00", "device-01"), "label_offer"
    try:
        ended(here.engine(fleet))
        assert {each["asked"] for each in here.seen("exchange", question="label_mix")} == {0}
        told = [each["text"] for each in here.seen("note")]
        assert any("2 label bounties closed: 0 of 6 mixes are there" in each for each in told)
    finally:
        here.close()


def test_labels_are_numbered_after_the_run_s_list_of_classes(tmp_path: Path) -> None:
    names = [("cat", "dog"), ("dog", "cat"), ("cat", "cow"), ("dog", "hen")]
    shards = [
        Shard(images([4, 0], 7 + n), images([1, 1], 9), 2, class_names=each)
        for n, each in enumerate(names)
    ]
    listed = ["cat", "cow", "dog", "hen"]
    here = world(tmp_path, shards, data={"name": "none", "classes": listed})
    here.dataset = Dataset(no_samples(()), no_samples(()), 0, ())
    try:
        ended(here.engine())
        checkpoint = here.stores[-1].checkpoint(here.run)
        assert checkpoint is not None
        found = BountyRecords.of(checkpoint.state).bounties
        got = {(each.device[-1], listed[each.label], each.received) for each in found}
        assert got == {
            *(("0", name, 2 if name == "dog" else 0) for name in ("cow", "dog", "hen")),
            *(("1", name, 2 if name == "cat" else 0) for name in ("cat", "cow", "hen")),
            *(("2", name, 2 if name == "dog" else 0) for name in ("cow", "dog", "hen")),
            *(("3", name, 2 if name == "cat" else 0) for name in ("cat", "cow", "hen")),
        }
    finally:
        here.close()

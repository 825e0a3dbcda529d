"""Runs whose model changes, is made of several, or differs from what the devices train."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from edgefed.algorithms.averaging.fedavg import FedAvg
from edgefed.algorithms.composed.composition import compose
from edgefed.algorithms.composed.method import Method
from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.interface.base import State
from edgefed.learn.base.types import Tensors
from edgefed.learn.training.warm_trainers import MAX_TRAINERS, Trainers
from edgefed.wire.tensors import weights_digest
from tests.algorithms.play import bits
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.exchanges.test_resume import Fuse, PowerCut, cut_in_replies, scores
from tests.coordinator.fleets import TamperedFleet
from tests.coordinator.model_algorithms import (
    STEP,
    Renaming,
    Student,
    StudentMix,
    TwoModels,
    TwoModelsMix,
    Widening,
    WideningMix,
    network,
    of,
)
from tests.run_fixture import CLASSES, COARSE, SHAPE, World, recipe, shards

KINDS: tuple[type[FedAvg], ...] = (Widening, TwoModels, Student, Renaming)


def started(world: MakeWorld, kind: type[FedAvg], on: str = "both") -> tuple[World, FedAvg]:
    plan = recipe(wire=COARSE, evaluation={"on": on})
    return world(plan, shards((5, 9, 6, 4), tested=3)), of(kind, plan)


def finished(world: MakeWorld, kind: type[FedAvg], on: str = "both") -> tuple[World, TamperedFleet]:
    here, algorithm = started(world, kind, on)
    fleet = TamperedFleet(here.devices)
    record = here.engine(fleet, algorithm=algorithm).run()
    assert record.status == "finished", record.reason
    assert {outcome for _, outcome, _ in fleet.verdicts} == {"accepted"}
    return here, fleet


def model_file(here: World) -> tuple[Tensors, dict[str, str]]:
    path = Path(here.folder, "runs", here.run, "model.safetensors")
    with safe_open(path, "np") as opened:
        return load_file(path), opened.metadata()


def state_of(here: World) -> State:
    checkpoint = here.stores[0].checkpoint(here.run)
    assert checkpoint is not None
    return checkpoint.state


def widths(fleet: TamperedFleet, name: str) -> list[int]:
    asked = [each for each in fleet.asked if each.name == name]
    return [hidden for each in asked for hidden in {t.model["hidden"][0] for t in each.tasks}]


def test_a_model_that_widens_is_trained_tested_and_saved_as_it_is(world: MakeWorld) -> None:
    here, fleet = finished(world, Widening)
    assert widths(fleet, "fit") == [4, 4 + STEP, 4 + 2 * STEP]
    assert widths(fleet, "evaluate") == [4 + STEP, 4 + 2 * STEP, 4 + 3 * STEP]
    assert all(None not in (row["loss"], row["device_loss"]) for row in here.rows)
    tensors, told = model_file(here)
    assert tensors["fc1.weight"].shape == (4 + 3 * STEP, *SHAPE)
    assert json.loads(told["model"])["hidden"] == [4 + 3 * STEP]
    assert told["weights_digest"] == here.record.weights_digest
    assert weights_digest(state_of(here).groups["weights"]) == here.record.weights_digest


def test_several_models_are_saved_and_digested_together(world: MakeWorld) -> None:
    here, fleet = finished(world, TwoModels)
    assert all({*task.blobs} == {"weights", "before"} for x in fleet.asked for task in x.tasks)
    groups = state_of(here).groups
    both = {f"now/{name}": array for name, array in groups["weights"].items()}
    both |= {f"before/{name}": array for name, array in groups["before"].items()}
    tensors, told = model_file(here)
    assert dict(bits(tensors)) == dict(bits(both))
    assert json.loads(told["models"]) == ["now", "before"]
    assert told["weights_digest"] == here.record.weights_digest == weights_digest(both)


def test_one_model_is_saved_under_its_own_names(world: MakeWorld) -> None:
    here, _ = finished(world, FedAvg)
    tensors, told = model_file(here)
    assert tensors.keys() == state_of(here).groups["weights"].keys()
    assert "models" not in told


def test_devices_train_another_model_than_the_one_that_is_tested(world: MakeWorld) -> None:
    here, fleet = finished(world, Student)
    assert widths(fleet, "fit") == [3] * 3
    assert widths(fleet, "evaluate") == [4] * 3
    groups = state_of(here).groups
    assert weights_digest(groups["weights"]) == here.record.weights_digest
    assert len(groups["student"]["fc1.bias"]) == 3


@pytest.mark.parametrize(
    ("kind", "split", "trained", "tested", "names"),
    [
        (WideningMix, 0, [4, 6, 8], [6, 8, 10], 4),
        (TwoModelsMix, 0, [4, 4, 4], [4, 4, 4], 8),
        (StudentMix, 1, [3, 3, 3], [4, 4, 4], 4),
    ],
)
def test_a_composed_algorithm_has_its_own_models_too(
    world: MakeWorld,
    kind: type[FedAvg],
    split: int,
    trained: list[int],
    tested: list[int],
    names: int,
) -> None:
    plan = recipe(
        algorithm={"name": "fedmix", "split": split}, wire=COARSE, evaluation={"on": "both"}
    )
    here = world(plan, shards((5, 9, 6, 4), tested=3))
    fleet = TamperedFleet(here.devices)
    record = here.engine(
        fleet, algorithm=compose(of(kind, plan), Method.of(plan, make(plan).settings))
    ).run()
    assert record.status == "finished", record.reason
    assert {outcome for _, outcome, _ in fleet.verdicts} == {"accepted"}
    assert (widths(fleet, "fit"), widths(fleet, "evaluate")) == (trained, tested)
    assert widths(fleet, "mean") == trained[: 3 if split else 1]
    assert len(model_file(here)[0]) == names


def test_names_that_are_no_longer_sent_are_forgotten(world: MakeWorld) -> None:
    here, fleet = finished(world, Renaming, on="coordinator")
    checkpoint = here.stores[0].checkpoint(here.run)
    assert checkpoint is not None
    assert checkpoint.downlink.keys() == {"weights-3"}
    assert len({each.tasks[0].blobs["weights"].digest for each in fleet.asked}) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_cut_on_the_way_of_replies_it_ends_in_the_same_bits(
    world: MakeWorld, kind: type[FedAvg]
) -> None:
    on = "coordinator" if kind is Renaming else "both"
    undisturbed, _ = finished(world, kind, on)
    for passes in (2, 10):  # in a first fit, and a later one
        here, algorithm = started(world, kind, on)
        with pytest.raises(PowerCut):
            cut_in_replies(here, Fuse(passes), algorithm)
        again = here.engine(algorithm=of(kind, here.recipe)).run()
        assert again.status == "finished", again.reason
        assert again.weights_digest == undisturbed.record.weights_digest, passes
        assert scores(here) == scores(undisturbed), passes


def test_a_model_that_no_longer_fits_ends_the_run_with_a_reason(world: MakeWorld) -> None:
    here, algorithm = started(world, Widening)
    record = here.engine(algorithm=algorithm, memory=2500).run()
    assert (record.status, record.error) == ("failed", "model.too_large")


def test_trainers_of_small_models_are_bounded_too() -> None:
    trainers = Trainers("cpu", 1 << 30)

    def of_width(hidden: int) -> Any:
        model = network(hidden).model_dump(mode="json")
        return trainers.get(model, SHAPE, CLASSES, allow_user=False)

    kept = [of_width(2 + number) for number in range(MAX_TRAINERS)]
    assert of_width(2) is kept[0]
    of_width(2 + MAX_TRAINERS)  # pushes out the one that was longest unused
    assert of_width(2) is kept[0]
    assert of_width(3) is not kept[1]

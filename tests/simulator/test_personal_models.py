"""Personal and clustered models in whole runs: with every executor, and after any cut."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView, Result
from edgefed.algorithms.private.personal_models import PersonalModels
from edgefed.config.recipes.recipe import Recipe, SimulationSection
from edgefed.data.base.types import Shard
from edgefed.learn.base.types import Trained
from edgefed.process.clock import SystemClock
from edgefed.report.page import report
from edgefed.report.run_data import run_data_of_folder
from edgefed.simulator.executors import Executor, Sequential
from edgefed.simulator.run import Simulation, SimulationResult
from edgefed.simulator.stacked_executor import StackedExecutor
from tests.coordinator.exchanges.test_resume import Fuse, PowerCut, cut_in_time
from tests.coordinator.fleets import TamperedFleet
from tests.run_fixture import COARSE, World, recipe, shards
from tests.simulator.work import process_pool

BIASED = {"personal": {"preset": "biased"}}
IFCA = {"algorithm": {"name": "ifca", "clusters": 2}}
TOLERANCE = 1e-5
"""Of every weight, between devices that train one by one and at once."""


def digits(**sections: Any) -> Recipe:
    values: dict[str, Any] = {
        "seed": 5,
        "model": {"name": "mlp", "hidden": [8]},
        "data": {"name": "digits", "limit": 160},
        "evaluation": {"on": "devices"},
        "wire": COARSE,
        "rounds": {"count": 2},
        "simulation": {"devices": 4, "holdout": 0.2},
    }
    return Recipe.model_validate({**values, **sections})


MakeExecutor = Callable[[Sequence[Shard]], Executor]


def simulate(plan: Recipe, folder: Path, executor: MakeExecutor) -> SimulationResult:
    def make(
        dealt: Sequence[Shard], section: SimulationSection, tell: Callable[[str], None]
    ) -> tuple[Executor, str]:
        return executor(dealt), ""

    result = Simulation(plan, folder, SystemClock(), executors=make).run()
    assert result.record.status == "finished", result.record.reason
    return result


def two_processes(dealt: Sequence[Shard]) -> Executor:
    return process_pool(dealt, 2)


TUNED = {"personal": {"weights": ["fc1.*"], "fine_tune_epochs": 1}}


@pytest.mark.parametrize(
    "sections",
    [TUNED, {**BIASED, "algorithm": {"name": "fedmix"}}, IFCA],
    ids=["lg", "fedmix", "ifca"],
)
def test_every_executor_ends_in_the_same_model(sections: dict[str, Any], tmp_path: Path) -> None:
    plan = digits(**sections)
    executors: list[MakeExecutor] = [Sequential, two_processes, StackedExecutor]
    one, same, stacked = (
        simulate(plan, tmp_path / str(number), executor)
        for number, executor in enumerate(executors)
    )
    assert one.record.weights_digest == same.record.weights_digest
    assert one.record.accuracy == same.record.accuracy
    mine, theirs = (load_file(each.folder / "model.safetensors") for each in (one, stacked))
    if sections is not IFCA:  # which trains one device after another in every executor
        assert mine.keys() == theirs.keys()
        for key, array in mine.items():
            np.testing.assert_allclose(theirs[key], array, atol=TOLERANCE)
    else:
        assert one.record.weights_digest == stacked.record.weights_digest


@pytest.mark.parametrize("weights", [[], ["fc1.*"]], ids=["global", "personal"])
def test_the_scores_before_fine_tuning_are_those_of_a_run_without_it(
    tmp_path: Path, weights: list[str]
) -> None:
    tests = {"evaluation": {"on": "devices"}}
    tuned = digits(personal={"weights": weights, "fine_tune_epochs": 3}, **tests)
    plain = digits(personal={"weights": weights}, **tests)
    ours, theirs = (
        simulate(plan, tmp_path / str(number), Sequential)
        for number, plan in enumerate((tuned, plain))
    )
    assert ours.record.weights_digest == theirs.record.weights_digest
    for row, other in zip(rounds(ours), rounds(theirs), strict=True):
        for name in ("accuracy", "loss"):
            assert row[f"{name}_before"] == row[f"device_{name}_before"] == other[name]
            assert f"{name}_before" not in other
        assert row["loss"] < other["loss"]
    page = report(run_data_of_folder(ours.folder))
    assert "devices, before fine-tuning" in page
    assert "devices, before fine-tuning" not in report(run_data_of_folder(theirs.folder))


def rounds(run: SimulationResult) -> list[dict[str, Any]]:
    lines = (run.folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


LABELS = {"supplement": 1.0, "noise": "white", "mix_share": 0.0}


@pytest.mark.parametrize("sections", [BIASED, IFCA], ids=["biased", "ifca"])
def test_supplements_for_missing_labels_join_the_samples(
    sections: dict[str, Any], tmp_path: Path
) -> None:
    data = {"name": "digits", "limit": 160, "classes_per_device": 3}
    with_them = digits(**sections, data=data, labels=LABELS)
    without = digits(**sections, data=data)
    runs = [
        simulate(plan, tmp_path / str(number), Sequential)
        for number, plan in enumerate((with_them, with_them, without))
    ]
    digests = [run.record.weights_digest for run in runs]
    assert digests[0] == digests[1] != digests[2]
    assert runs[0].record.preparatory_exchanges > 0
    assert weighed(runs[0]) == weighed(runs[2]), "an answer weighs real samples only"


def weighed(run: SimulationResult) -> list[int]:
    """Return the samples of each answer to training."""
    events = map(json.loads, (run.folder / "events.jsonl").read_text().splitlines())
    replies = [each for each in events if each["kind"] == "reply" and each["question"] == "fit"]
    assert len(replies) == 8
    return [each["samples"] for each in replies]


def worlds(folder: Path, sections: Mapping[str, Any]) -> Callable[[], World]:
    plan = recipe(
        wire=COARSE, rounds={"count": 3, "cohort": 3}, evaluation={"on": "devices"}, **sections
    )
    made: list[World] = []

    def new() -> World:
        made.append(World(folder / str(len(made)), plan, shards((5, 9, 6, 4), tested=5)))
        return made[-1]

    return new


@pytest.mark.parametrize("sections", [BIASED, IFCA], ids=["biased", "ifca"])
@pytest.mark.parametrize("passes", [40, 75, 110])
def test_a_run_that_is_cut_ends_in_the_same_bits(
    sections: dict[str, Any], passes: int, tmp_path: Path
) -> None:
    new = worlds(tmp_path, sections)
    straight, cut = new(), new()
    assert straight.engine().run().status == "finished"
    with pytest.raises(PowerCut):
        cut_in_time(cut, Fuse(passes))
    assert cut.engine().run().status == "finished"
    assert cut.record.weights_digest == straight.record.weights_digest
    assert cut.record.accuracy == straight.record.accuracy
    straight.close()
    cut.close()


def test_devices_that_never_trained_are_also_counted_apart(tmp_path: Path) -> None:
    rounds = {"count": 1, "cohort": 2}
    result = simulate(digits(**{**BIASED, "rounds": rounds}), tmp_path, Sequential)
    row = json.loads((result.folder / "metrics.jsonl").read_text())
    assert (row["devices_known"], row["devices_new"]) == (1, 1)
    assert {"accuracy_known", "loss_known", "accuracy_new", "loss_new"} <= row.keys()


def test_an_answer_with_personal_weights_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def everything(
        half: PersonalModels, task: DeviceTask, device: DeviceView, result: Result
    ) -> Answer:
        assert isinstance(result, Trained)
        return Answer(task.device, result.samples, {"delta": Group(result.weights)})

    monkeypatch.setattr(PersonalModels, "answer", everything)
    here = worlds(tmp_path, BIASED)()
    fleet = TamperedFleet(here.devices)
    assert here.engine(fleet).run().status == "failed"
    assert {(outcome, "out.bias" in reason) for _, outcome, reason in fleet.verdicts} == {
        ("rejected", True)
    }
    here.close()

"""Personal and clustered models in whole runs, with every executor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView, Result
from edgefed.algorithms.private.personal_models import PersonalModels
from edgefed.config.recipes.recipe import Recipe
from edgefed.data.base.types import Shard
from edgefed.learn.base.types import Trained
from edgefed.report.page import report
from edgefed.report.run_data import run_data_of_folder
from edgefed.simulator.executors import Executor, Sequential
from edgefed.simulator.run import SimulationResult
from edgefed.simulator.stacked_executor import StackedExecutor
from tests.coordinator.fleets import TamperedFleet
from tests.run_fixture import COARSE, World, recipe
from tests.simulator.work import events, finished, made_by, process_pool, rows

pytestmark = pytest.mark.forks

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
        "simulation": {"devices": 4, "holdout": 0.2, "workers": 1},
    }
    return Recipe.model_validate({**values, **sections})


TUNED = {"personal": {"weights": ["fc1.*"], "fine_tune_epochs": 1}}


@pytest.mark.parametrize(
    "sections",
    [TUNED, IFCA],
    ids=["lg", "ifca"],
)
def test_every_executor_ends_in_the_same_model(sections: dict[str, Any], tmp_path: Path) -> None:
    plan = digits(**sections)
    executors: list[Callable[[Sequence[Shard]], Executor]] = [
        Sequential,
        lambda dealt: process_pool(dealt, 2),
        StackedExecutor,
    ]
    one, same, stacked = (
        finished(plan, tmp_path / str(number), executors=made_by(executor))
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


def test_the_scores_before_fine_tuning_are_those_of_a_run_without_it(tmp_path: Path) -> None:
    weights = ["fc1.*"]
    tests = {"evaluation": {"on": "devices"}}
    tuned = digits(personal={"weights": weights, "fine_tune_epochs": 3}, **tests)
    plain = digits(personal={"weights": weights}, **tests)
    ours, theirs = finished(tuned, tmp_path / "tuned"), finished(plain, tmp_path / "plain")
    assert ours.record.weights_digest == theirs.record.weights_digest
    for row, other in zip(rows(ours), rows(theirs), strict=True):
        for name in ("accuracy", "loss"):
            assert row[f"{name}_before"] == row[f"device_{name}_before"] == other[name]
            assert f"{name}_before" not in other
        assert row["loss"] < other["loss"]
    page = report(run_data_of_folder(ours.folder))
    assert "devices, before fine-tuning" in page
    assert "devices, before fine-tuning" not in report(run_data_of_folder(theirs.folder))


LABELS = {"supplement": 1.0, "noise": "white", "mix_share": 0.0}


def test_supplements_for_missing_labels_join_the_samples(tmp_path: Path) -> None:
    data = {"name": "digits", "limit": 160, "classes_per_device": 3}
    with_them = digits(**BIASED, data=data, labels=LABELS)
    without = digits(**BIASED, data=data)
    runs = [
        finished(plan, tmp_path / str(number))
        for number, plan in enumerate((with_them, with_them, without))
    ]
    digests = [run.record.weights_digest for run in runs]
    assert digests[0] == digests[1] != digests[2]
    assert runs[0].record.preparatory_exchanges > 0
    assert weighed(runs[0]) == weighed(runs[2]), "an answer weighs real samples only"


def weighed(run: SimulationResult) -> list[int]:
    """Return the samples of each answer to training."""
    replies = [each for each in events(run, "reply") if each["question"] == "fit"]
    assert len(replies) == 8
    return [each["samples"] for each in replies]


def test_devices_that_never_trained_are_also_counted_apart(tmp_path: Path) -> None:
    rounds = {"count": 1, "cohort": 2}
    result = finished(digits(**{**BIASED, "rounds": rounds}), tmp_path)
    (row,) = rows(result)
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
    here = World(tmp_path, recipe(**BIASED))
    fleet = TamperedFleet(here.devices)
    assert here.engine(fleet).run().status == "failed"
    assert {(outcome, "out.bias" in reason) for _, outcome, reason in fleet.verdicts} == {
        ("rejected", True)
    }
    here.close()

"""An operator has the model of a paused or ended run tested; the run stays as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.rounds.evaluation_request import EvaluationRequest
from edgefed.coordinator.rounds.run_controls import RunControls
from edgefed.coordinator.rounds.saved_evaluation import ended_run, evaluate
from edgefed.data.base.types import Preparation
from edgefed.errors import EdgeFedError
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.exchanges.test_resume import Fuse, PowerCut, cut_in_replies
from tests.coordinator.fleets import TamperedFleet
from tests.coordinator.rounds.test_controls import PATIENCE, AtWork
from tests.run_fixture import COARSE, World, recipe, shards

HELD = shards((5, 9, 6, 4), tested=3)
BOTH = {"on": "both"}


def evaluated(
    here: World, on: str | None = None, mode: str = "", *, best: bool = False
) -> dict[str, Any]:
    """Return the result of testing the model of a world's run, which has ended."""
    deps = here.engine()._deps
    request = EvaluationRequest(on, mode, best)  # type: ignore[arg-type]
    return evaluate(lambda: ended_run(deps, here.record, lambda text: None), request)


def test_an_ended_run_is_tested_again_with_the_same_scores(world: MakeWorld) -> None:
    here = world(recipe(evaluation=BOTH, rounds={"cohort": 2}), HELD)
    ended = here.engine().run()
    digest = ended.weights_digest
    found = evaluated(here)
    assert (found["run"], found["round"]) == (here.run, 3)
    assert found["scores"]["accuracy"] == here.rows[-1]["accuracy"]
    assert found["scores"]["loss"] == here.rows[-1]["loss"]
    # Everybody is asked, whatever the cohort of a round is.
    assert [each["device"] for each in found["devices"]] == [f"device-{n:02d}" for n in range(4)]
    assert [each["samples"] for each in found["devices"]] == [3] * 4
    mean = sum(each["accuracy"] for each in found["devices"]) / 4
    assert found["scores"]["device_accuracy"] == pytest.approx(mean)
    # The exchange has an index of its own, and no seed.
    assert here.record == replace(
        ended, exchanges=ended.exchanges + 1, preparatory_exchanges=ended.preparatory_exchanges + 1
    )
    assert here.record.weights_digest == digest
    assert evaluated(here, "devices")["scores"] == {
        name: score for name, score in found["scores"].items() if "device" in name
    } | {
        name.removeprefix("device_"): score
        for name, score in found["scores"].items()
        if name.startswith("device_") and not name.startswith("device_accuracy_")
    }
    # The counts are those of the last round, and of everybody who was asked now.
    on_coordinator, on_devices = found["confusions"]
    (before, _) = here.stores[0].confusions(here.run)
    assert (on_coordinator["round"], on_coordinator["matrix"]) == (3, before["counts"])
    assert (on_devices["devices"], on_devices["tested"]) == (4, 4)
    assert sum(each["samples"] for each in on_devices["classes"]) == 12


@pytest.mark.parametrize(
    ("train", "personal"),
    [("head", {}), ("all", {"preset": "biased"})],
    ids=["shared", "personal"],
)
def test_the_best_rounds_model_is_tested_with_the_scores_of_its_round(
    world: MakeWorld, personal: dict[str, str], train: str
) -> None:
    highest = {**BOTH, "best_metric": "loss", "better": "higher"}
    model = {"name": "mlp", "hidden": [4], "train": train}
    here = world(recipe(evaluation=highest, personal=personal, model=model), HELD)
    here.engine().run()
    best = max(here.rows, key=lambda row: float(row["loss"]))
    found = evaluated(here, "coordinator", best=True)
    assert found["round"] == best["round"] < 3, "else the test shows nothing"
    assert {"accuracy", "loss", "macro_f1"} <= found["scores"].keys()
    assert found["scores"] == {name: best[name] for name in found["scores"]}
    on_devices = evaluated(here, best=True)["scores"]["device_loss"]
    if not personal:  # else devices have their own weights of the last round
        assert on_devices == best["device_loss"]
    assert on_devices != here.rows[-1]["device_loss"]
    assert evaluated(here, "coordinator")["round"] == 3


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (recipe(algorithm={"name": "ifca"}), "cannot be evaluated by itself"),
        (recipe(training={"learning_rate": 1e-30}), "has kept no model of its best round"),
    ],
)
def test_a_best_model_that_says_too_little_or_is_not_there_is_refused(
    world: MakeWorld, plan: Recipe, told: str
) -> None:
    here = world(plan, HELD)
    here.engine().run()
    if "kept no" in told:
        (here.folder / "runs" / here.run / "best.safetensors").unlink()
    with pytest.raises(EdgeFedError, match=told) as caught:
        evaluated(here, best=True)
    assert caught.value.code == "evaluate.best"


def test_a_paused_run_is_tested_and_ends_in_the_same_bits(world: MakeWorld) -> None:
    plan = recipe(evaluation=BOTH, wire=COARSE)
    undisturbed = world(plan, HELD)
    undisturbed.engine().run()
    here = world(plan, HELD)
    working = AtWork(here, RunControls(paused=True))
    working.await_status("paused")
    request = EvaluationRequest("devices")
    for steps in (1, 2):
        working.controls.order("step")
        working.await_status("running")
        working.await_status("paused")
        request = EvaluationRequest("devices")
        working.controls.evaluate(request)
        found = request._result.result(PATIENCE)
        assert (found["round"], len(found["devices"])) == (steps, 4)
    working.controls.order("resume")
    assert working.end().status == "finished"
    assert here.record.weights_digest == undisturbed.record.weights_digest != ""
    scores = [[row[name] for name in ("accuracy", "loss")] for row in here.rows]
    assert scores == [[row[name] for name in ("accuracy", "loss")] for row in undisturbed.rows]


@pytest.mark.parametrize("paused", [True, False])
def test_devices_prepare_images_as_they_did_in_the_run(world: MakeWorld, paused: bool) -> None:
    here = world(recipe(evaluation=BOTH), HELD)
    here.dataset = replace(here.dataset, preparation=Preparation((0.4,), (0.2,)))
    request = EvaluationRequest("devices")
    if paused:
        working = AtWork(here, RunControls(paused=True))
        fleet = working.fleet
        working.await_status("paused")
        working.controls.evaluate(request)
        request._result.result(PATIENCE)
        working.controls.order("resume")
        working.end()
    else:
        fleet = TamperedFleet(here.devices)
        here.engine(fleet).run()
        deps = here.engine(fleet)._deps
        evaluate(lambda: ended_run(deps, here.record, lambda text: None), request)
    told = [task.images for exchange in fleet.asked for task in exchange.tasks]
    assert len(told) == 4 * 7
    assert all(each["mean"] == [0.4] and each["std"] == [0.2] for each in told)


def test_an_evaluation_that_the_runs_end_overtakes_is_given_up(world: MakeWorld) -> None:
    controls = RunControls()
    request = EvaluationRequest()
    controls.evaluate(request)
    assert request.result() is None
    controls.give_up_evaluations()
    with pytest.raises(EdgeFedError, match="not finished") as caught:
        request.result()
    assert caught.value.code == "evaluate.ended"


def problem(here: World, on: str | None = None, mode: str = "") -> str:
    with pytest.raises(EdgeFedError) as caught:
        evaluated(here, on, mode)
    assert caught.value.hint
    return caught.value.code


def test_what_cannot_be_tested_is_said(world: MakeWorld) -> None:
    here = world(recipe(rounds={"count": 1}), tests=0)
    assert problem(here) == "evaluate.no_model"
    here.engine().run()
    assert problem(here, "coordinator") == "evaluate.samples"
    assert problem(here, "devices") == "evaluate.samples"  # no device holds any out
    assert problem(here, mode="known") == "evaluate.mode"
    experts = world(recipe(algorithm={"name": "fedmoe", "experts": 2}, rounds={"count": 1}))
    experts.engine().run()
    assert problem(experts, "coordinator", "known") == "evaluate.mode"
    alone = world(recipe(rounds={"count": 1}), HELD)
    alone.engine().run()
    fleet = TamperedFleet(alone.devices)
    fleet.roster = lambda: ()  # type: ignore[method-assign]
    deps = alone.engine(fleet)._deps
    with pytest.raises(EdgeFedError) as caught:
        evaluate(
            lambda: ended_run(deps, alone.record, lambda text: None), EvaluationRequest("devices")
        )
    assert caught.value.code == "evaluate.devices"


def test_a_run_that_stopped_in_an_exchange_is_not_tested(world: MakeWorld) -> None:
    here = world()
    with pytest.raises(PowerCut):
        cut_in_replies(here, Fuse(2))
    before = here.record
    assert problem(here) == "evaluate.open"
    assert here.record == before
    assert here.engine().run().status == "finished"
    assert evaluated(here, "coordinator")["scores"]["loss"] == here.rows[-1]["loss"]

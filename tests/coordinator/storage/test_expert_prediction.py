"""Devices predict with a mixture of experts: known ones, new ones, and by the gates of others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.experts.marginal_gates import likely_shares, unstacked
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView, TrainedEvalJob
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.storage.stored_runs import Checkpoint
from edgefed.data.base.types import Shard, take
from edgefed.errors import EdgeFedError
from edgefed.files.samples import Samples
from edgefed.learn.modeling.model import Model
from edgefed.learn.training.mixture_prediction import (
    Gate,
    device_predictor,
    marginal_predictor,
    prior_shares,
)
from edgefed.learn.training.scoring import score
from edgefed.learn.training.trainer import ModelPredictions, Trainer
from edgefed.sharing.policy import ANYTHING, Policy
from edgefed.sharing.releases import gate_release
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.exchanges.test_resume import Fuse, PowerCut, cut_in_replies
from tests.coordinator.rounds.test_saved_evaluation import evaluated
from tests.run_fixture import CLASSES, World, recipe, shards

TESTED = shards((5, 9, 6, 4), tested=5)
SILENT = replace(TESTED[1], policy=Policy(share_gate=False))


def plan(**algorithm: Any) -> Recipe:
    return recipe(
        algorithm={"name": "fedmoe", "experts": 2, **algorithm},
        rounds={"count": 2, "cohort": 2},
        seed=3,
    )


def trained(here: World) -> list[str]:
    """Return the devices that have trained in a world's run."""
    return sorted(state_of(here).state.params["mixtures"])


def state_of(here: World) -> Checkpoint:
    checkpoint = here.stores[0].checkpoint(here.run)
    assert checkpoint is not None
    return checkpoint


def model_of(here: World) -> Model:
    return here.engine()._begin().run_model.model


def test_new_devices_fit_a_gate_and_are_counted_apart(world: MakeWorld) -> None:
    here = world(plan(), TESTED)
    assert here.engine().run().status == "finished"
    found = evaluated(here)
    known = trained(here)
    assert 1 < len(known) < 4, "the test needs devices of both kinds"
    modes = {each["device"]: each["mode"] for each in found["devices"]}
    assert modes == {
        f"device-{n:02d}": "known" if f"device-{n:02d}" in known else "fitted" for n in range(4)
    }
    scores, each = found["scores"], found["devices"]
    assert scores["accuracy"] == pytest.approx(np.mean([one["accuracy"] for one in each]))
    for mode in ("known", "fitted"):
        of_mode = [one["loss"] for one in each if one["mode"] == mode]
        assert scores[f"devices_{mode}"] == len(of_mode)
        assert scores[f"loss_{mode}"] == pytest.approx(np.mean(of_mode))
    # What a round's own test found goes the same way, to the rows that `run show` has.
    assert {"accuracy_known", "devices_known"} <= here.rows[-1].keys()

    forced = evaluated(here, mode="known")
    assert [one["device"] for one in forced["devices"]] == known
    forced = evaluated(here, mode="fitted")
    assert [one["mode"] for one in forced["devices"]] == ["fitted"] * 4
    new = {one["device"]: one["loss"] for one in each if one["mode"] == "fitted"}
    again = {one["device"]: one["loss"] for one in forced["devices"]}
    assert new.items() <= again.items()
    assert all(again[one["device"]] != one["loss"] for one in each if one["mode"] == "known")


def test_gates_are_collected_from_devices_that_share_them(world: MakeWorld) -> None:
    parts = (TESTED[0], SILENT, *TESTED[2:])
    here = world(plan(collect_gates=True), parts)
    plain = world(plan(), parts)
    assert here.engine().run().status == plain.engine().run().status == "finished"
    assert here.record.weights_digest == plain.record.weights_digest
    assert here.record.round == 2
    assert here.record.seed_index == plain.record.seed_index
    assert [row["accuracy"] for row in here.rows] == [row["accuracy"] for row in plain.rows]
    given = [name for name in trained(here) if name != "device-01"]
    state = state_of(here).state
    assert state.params["gates"] == given != trained(here)
    sizes = {f"device-{n:02d}": len(part.train) for n, part in enumerate(parts)}
    gates = state.groups["gates"]
    assert gates["samples"].tolist() == [sizes[name] for name in given]
    for name, device in here.devices._devices.items():
        entry = gate_release(2, sizes[name], 2)
        expected = (entry,) if name in given else ()
        assert device.kept.persistent.ledger == expected
    assert here.seen("note", text=f"{len(given)} of 4 devices shared their gates (share_gate)")

    found = evaluated(here, "both", "marginal")
    assert found["scores"]["devices_marginal"] == 4
    experts = {k: dict(state.groups[f"expert-{k}"]) for k in range(2)}
    every = [
        Gate(gates["weight"][s], gates["bias"][s], gates["shares"][s], (0, 1))
        for s in range(len(given))
    ]
    prior = prior_shares(gates["samples"].tolist())
    trainer = Trainer(model_of(here))
    by_hand = marginal_predictor(experts, every, prior)(ModelPredictions(trainer))
    for each, part in zip(found["devices"], parts, strict=True):
        assert each["loss"] == pytest.approx(score(by_hand, part.test).loss, rel=1e-6)
    central = score(by_hand, here.dataset.test)
    assert found["scores"]["loss"] == pytest.approx(central.loss, rel=1e-6)


def test_a_kill_while_gates_are_collected_costs_nothing(world: MakeWorld) -> None:
    undisturbed, here = (world(plan(collect_gates=True), TESTED) for _ in range(2))
    undisturbed.engine().run()
    replies = len(undisturbed.seen("reply", outcome="accepted"))
    with pytest.raises(PowerCut):
        cut_in_replies(here, Fuse(replies - 2))
    assert here.engine().run().status == "finished"
    assert here.record.weights_digest == undisturbed.record.weights_digest
    found, wanted = (state_of(each).state for each in (here, undisturbed))
    assert found.params == wanted.params
    for name, array in wanted.groups["gates"].items():
        np.testing.assert_array_equal(found.groups["gates"][name], array)


def test_without_gates_of_others_there_is_no_marginal_mode(world: MakeWorld) -> None:
    nobody = [replace(part, policy=Policy(share_gate=False)) for part in TESTED]
    for here in (world(plan(), TESTED), world(plan(collect_gates=True), nobody)):
        assert here.engine().run().status == "finished"
        with pytest.raises(EdgeFedError) as caught:
            evaluated(here, mode="marginal")
        assert caught.value.code == "evaluate.gates"
        assert evaluated(here, "coordinator")["scores"]["loss"] > 0


@pytest.mark.parametrize("condition", ["label", "device"])
def test_a_fitted_gate_leaves_experts_and_table_as_they_are(
    world: MakeWorld, condition: str
) -> None:
    here = world(plan(condition=condition), TESTED)
    model, part = model_of(here), TESTED[0]
    state = state_of(here).state
    groups = {name: dict(each) for name, each in state.groups.items()}
    if condition == "label":  # equal shares would teach a gate nothing
        groups["table"]["phi"] = np.array([[2, 0], [0, 2], [1, 0]], np.float32)
    task = DeviceTask("evaluate", 1, "cam-9", 5, groups, {"experts": [0, 1]})
    view = DeviceView(part.train, part.test, {}, part.policy, model)
    test = make(here.recipe).eval_job(task, view)
    assert isinstance(test, TrainedEvalJob)
    fitted = Trainer(model, "cpu").train(test.job, part.train)
    for name, array in groups["expert-0"].items():
        np.testing.assert_array_equal(fitted.weights[name], array)
    shares = {"mixture/shares"} if condition == "device" else set()
    assert set(fitted.variables) == {"gate/weight", "gate/bias"} | shares
    assert np.abs(fitted.variables["gate/weight"]).max() > 0
    own = {name.partition("/")[2]: array for name, array in fitted.variables.items()}
    asked = replace(task, params={**task.params, "mode": "fitted"})
    again = make(here.recipe).eval_job(asked, replace(view, private={"gate": own}))
    assert isinstance(again, TrainedEvalJob)
    assert not again.job.variables["gate/weight"].any(), "as on a device that has none"


def pixels(bright: slice, seed: int, policy: Policy = ANYTHING) -> Shard:
    """Return a device's dark images of 8 pixels, some of which are bright."""
    numbers = np.random.default_rng(seed)
    inputs = numbers.uniform(0, 0.2, (40, 8)).astype(np.float32)
    inputs[:, bright] += 0.8
    given = Samples(inputs, numbers.integers(0, CLASSES, 40))
    return Shard(take(given, np.arange(30)), take(given, np.arange(30, 40)), CLASSES, policy=policy)


def test_densities_decide_whose_gates_count(world: MakeWorld) -> None:
    shy = Policy(share_density=False)
    parts = (pixels(slice(0, 4), 1), pixels(slice(4, 8), 2), pixels(slice(0, 8), 3, shy))
    algorithm = {"name": "fedmoe", "experts": 2, "collect_gates": True, "collect_densities": True}
    here = world(recipe(algorithm=algorithm, rounds={"count": 1}), parts)
    assert here.engine().run().status == "finished"
    told = "3 of 3 devices shared their gates (share_gate)"
    assert here.seen("note", text=f"{told}, 2 a density of inputs from 0 to 1 (share_density)")
    state = state_of(here).state
    assert state.params["densities"] == ["device-00", "device-01"]
    kinds = {
        name: [entry["kind"] for entry in device.kept.persistent.ledger]
        for name, device in here.devices._devices.items()
    }
    both = ["gate", "density"]
    assert kinds == {"device-00": both, "device-01": both, "device-02": ["gate"]}

    shares = likely_shares(state, 1)
    assert shares is not None
    for n, part in enumerate(parts[:2]):
        found = shares(part.test.inputs)
        np.testing.assert_allclose(found.sum(axis=1), 1)
        assert found[:, n].min() > 0.9, "the device whose samples look like this"
        assert not found[:, 2].any(), "it gave no density"
    made, trainer = make(here.recipe), Trainer(model_of(here), "cpu")
    predicted = made.predictor(state, ModelPredictions(trainer))(parts[0].test.inputs)
    experts = {k: state.groups[f"expert-{k}"] for k in range(2)}
    own = device_predictor(experts, unstacked(state.groups["gates"])[0])
    alone = own(ModelPredictions(trainer))(parts[0].test.inputs)
    np.testing.assert_allclose(np.exp(predicted), np.exp(alone), atol=0.05)

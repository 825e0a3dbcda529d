"""Deadlines, quorums, retries, minimum numbers of devices, and where the model is tested."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from safetensors.numpy import load_file

from edgefed.algorithms.interface.member import Roster
from edgefed.config.recipes.recipe import ModelSection
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.learn.modeling.model_building import build
from edgefed.learn.training.trainer import Trainer
from edgefed.wire.tensors import weights_digest
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.fleets import TamperedFleet, silent
from tests.run_fixture import CLASSES, EXACT, SHAPE, recipe, shards

SIX = (5, 9, 6, 4, 7, 8)


class Deaf:
    """Hears nothing in the first exchanges."""

    def __init__(self, exchanges: int) -> None:
        self._left = exchanges

    def __call__(self, _: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        if self._left:
            self._left -= 1
            return iter(())
        return replies


def test_a_quorum_at_the_deadline_closes_the_round(world: MakeWorld) -> None:
    here = world(recipe(rounds={"quorum": 0.5}))
    fleet = TamperedFleet(here.devices, silent("device-00", "device-02"))
    record = here.engine(fleet).run()
    assert record.status == "finished"
    assert [row["replies"] for row in here.rows] == [2, 2, 2]
    assert len(fleet.asked) == 3
    assert {exchange.attempt for exchange in fleet.asked} == {0}


@pytest.mark.parametrize(("grace", "kept"), [(2.5, 2.5), ("deadline", None)])
def test_every_exchange_has_the_recipes_grace(
    world: MakeWorld, grace: float | str, kept: float | None
) -> None:
    """Those that only prepare for others and those that test the model among them."""
    plan = recipe(
        algorithm={"name": "fedmix"},
        rounds={"count": 1, "lost_grace": grace},
        evaluation={"on": "devices"},
    )
    here = world(plan, shards((5, 9, 6, 4), tested=3))
    fleet = TamperedFleet(here.devices)
    assert here.engine(fleet).run().status == "finished"
    assert {exchange.name for exchange in fleet.asked} == {"mean", "fit", "evaluate"}
    assert {exchange.lost_grace for exchange in fleet.asked} == {kept}


def test_below_the_quorum_a_new_cohort_is_asked_under_a_new_name(world: MakeWorld) -> None:
    here = world(recipe(rounds={"cohort": 2, "retries": 4, "count": 1}), shards(SIX))
    fleet = TamperedFleet(here.devices, Deaf(4))
    assert here.engine(fleet).run().status == "finished"
    assert [exchange.attempt for exchange in fleet.asked] == [0, 1, 2, 3, 4]
    assert [exchange.round for exchange in fleet.asked] == [1] * 5
    assert len({exchange.exchange for exchange in fleet.asked}) == 5
    cohorts = {tuple(task.device for task in exchange.tasks) for exchange in fleet.asked}
    assert len(cohorts) > 1
    assert here.rows[0]["replies"] == 2
    assert len(here.seen("round")) == 1
    assert here.rows[0]["sent"] == here.record.bytes_down, "lost attempts cost, too"


def test_answers_of_an_attempt_below_its_quorum_are_not_merged(world: MakeWorld) -> None:
    plan = recipe(rounds={"quorum": 1.0, "retries": 1, "count": 1})

    def first_time_one(exchange: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        return (each for each in replies if exchange.attempt or each.reply.device == "device-01")

    here, there = world(plan), world(plan)
    record = here.engine(TamperedFleet(here.devices, first_time_one)).run()
    lost = there.engine(TamperedFleet(there.devices, Deaf(1))).run()
    assert record.status == "finished"
    assert record.weights_digest == lost.weights_digest


class Leaving(TamperedFleet):
    """Devices that all go after the first round."""

    def roster(self) -> Roster:
        return super().roster() if not self.asked else ()

    def wait_for(self, devices: int, timeout: float, stop: Callable[[], bool]) -> Roster:
        return super().wait_for(devices, timeout, stop) if not self.asked else ()


def test_when_no_device_is_left_the_reason_says_so(world: MakeWorld) -> None:
    here = world(recipe(rounds={"retries": 0, "count": 3}))
    record = here.engine(Leaving(here.devices)).run()
    assert record.reason == "No device was there for round 2, the quorum is 1."


@pytest.mark.parametrize("retries", [0, 2])
def test_without_a_quorum_the_run_fails_and_says_why(world: MakeWorld, retries: int) -> None:
    here = world(recipe(rounds={"retries": retries}))
    fleet = TamperedFleet(here.devices, silent("device-00", "device-01", "device-03"))
    record = here.engine(fleet).run()
    assert (record.status, record.error, record.round) == ("failed", "round.quorum", 0)
    assert here.seen("run")[-1]["round"] == 0
    assert record.reason == (
        "Only 1 of 4 devices answered round 1, the quorum is 2; "
        "3 had not answered when rounds.deadline (300 s) passed."
    )
    assert "edgefed run resume" in record.hint
    assert len(fleet.asked) == retries + 1
    assert here.record == record
    assert len(here.seen("note", level="warning")) == retries
    assert here.seen("run")[-1]["status"] == "failed"


def test_a_run_that_failed_asks_those_who_are_there_when_it_is_resumed(world: MakeWorld) -> None:
    here = world(recipe(rounds={"cohort": 2, "retries": 0, "count": 2}), shards(SIX))
    deaf = TamperedFleet(here.devices, Deaf(1))
    assert here.engine(deaf).run().error == "round.quorum"
    gone = {task.device for task in deaf.asked[0].tasks}

    def without_them(_: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        return (each for each in replies if each.reply.device not in gone)

    here.recipe = recipe(rounds={"cohort": 2, "retries": 9, "count": 2})
    fleet = TamperedFleet(here.devices, without_them)
    assert here.engine(fleet).run().status == "finished"
    assert fleet.asked[0].exchange != deaf.asked[0].exchange


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ((5, 9), "Only 2 of 3 devices are there with data after 60 s."),
        ((5, 0, 0, 9), "Only 2 of 3 devices are there with data after 60 s."),
        ((0,), "No device is there with data after 60 s."),
    ],
)
def test_too_few_devices_end_the_run_before_it_begins(
    world: MakeWorld, sizes: tuple[int, ...], reason: str
) -> None:
    here = world(recipe(rounds={"min_devices": 3}), shards(sizes))
    record = here.engine().run()
    assert (record.status, record.error, record.reason) == ("failed", "run.devices", reason)
    assert here.stores[0].checkpoint(here.run) is None


def test_watchers_are_told_how_many_devices_a_run_waits_for(world: MakeWorld) -> None:
    engine = world(recipe(rounds={"min_devices": 3}), shards((5, 9))).engine()
    engine.run()
    shown = engine._deps.journal.snapshot.run
    assert shown is not None
    assert shown.min_devices == 3


def test_a_run_that_lacked_devices_begins_when_they_are_there(world: MakeWorld) -> None:
    few, many = world(recipe(rounds={"min_devices": 3}), shards((5, 9))), world()
    assert few.engine().run().error == "run.devices"
    few.devices, few.cache = many.devices, many.cache
    assert few.engine().run().weights_digest == many.engine().run().weights_digest


def test_the_rows_and_the_model_say_what_happened(world: MakeWorld) -> None:
    here = world(recipe(rounds={"count": 3}, evaluation={"every": 2}))
    record = here.engine().run()
    assert (record.round, record.rounds, record.devices, record.exchanges) == (3, 3, 4, 3)
    assert [row["round"] for row in here.rows] == [1, 2, 3]
    assert [row["accuracy"] is not None for row in here.rows] == [False, True, True]
    assert record.accuracy == here.rows[-1]["accuracy"]
    assert all(0 < row["train_loss"] < 5 for row in here.rows)
    up, down = here.devices.traffic()
    assert (record.bytes_up, record.bytes_down) == (up, down)
    assert sum(row["sent"] for row in here.rows) == down
    assert sum(row["received"] for row in here.rows) == up
    model = load_file(here.folder / "runs" / here.run / "model.safetensors")
    checkpoint = here.stores[0].checkpoint(here.run)
    assert checkpoint is not None
    assert checkpoint.open == ()
    weights = checkpoint.state.groups["weights"]
    assert weights_digest(weights) == record.weights_digest
    assert {name: array.tobytes() for name, array in model.items()} == {
        name: array.tobytes() for name, array in weights.items()
    }


def test_training_learns(world: MakeWorld) -> None:
    here = world(recipe(rounds={"count": 25}), shards((40, 40, 40)), tests=60)
    here.engine().run()
    assert here.rows[-1]["loss"] < here.rows[0]["loss"] / 2
    assert here.rows[-1]["accuracy"] > 0.75


def test_devices_test_the_model_on_what_they_keep(world: MakeWorld) -> None:
    parts = [*shards((5, 9), tested=7), *shards((6, 4))]
    here = world(recipe(rounds={"count": 1}, evaluation={"on": "devices"}), parts)
    fleet = TamperedFleet(here.devices)
    record = here.engine(fleet).run()
    assert [exchange.name for exchange in fleet.asked] == ["fit", "evaluate"]
    model = build(ModelSection(name="mlp", hidden=[4]), SHAPE, CLASSES, 0)
    checkpoint = here.stores[0].checkpoint(here.run)
    assert checkpoint is not None
    scores = [
        Trainer(model, "cpu").evaluate(checkpoint.state.groups["weights"], part.test)
        for part in parts[:2]
    ]
    row = here.rows[0]
    assert row["device_accuracy"] == row["accuracy"] == record.accuracy
    right = sum(7 * (s.accuracy or 0) for s in scores)
    assert row["accuracy"] == pytest.approx(right / 14, abs=1e-12)
    assert row["loss"] == pytest.approx(sum(7 * s.loss for s in scores) / 14, abs=1e-12)
    refused = {fields["device"] for fields in here.seen("reply", outcome="refused")}
    assert refused == {"device-02", "device-03"}
    assert row["replies"] == 4, "tests do not count as answers of the round"


def test_both_tests_are_kept_apart(world: MakeWorld) -> None:
    here = world(recipe(evaluation={"on": "both"}), shards((5, 9), tested=7), tests=11)
    here.engine().run()
    alone = world(recipe(), shards((5, 9), tested=7), tests=11)
    alone.engine().run()
    assert all(row["device_loss"] != row["loss"] for row in here.rows)
    assert all("device_loss" not in row for row in alone.rows)
    # A test on devices is an exchange, from whose index seeds derive: only round 1 trains alike.
    assert here.rows[0]["loss"] == alone.rows[0]["loss"]
    assert here.rows[1]["loss"] != alone.rows[1]["loss"]


def test_without_samples_to_test_on_a_run_says_so_and_goes_on(world: MakeWorld) -> None:
    here = world(recipe(evaluation={"on": "devices"}, rounds={"count": 1}))
    assert here.engine().run().status == "finished"
    assert here.rows[0]["accuracy"] is None
    assert (
        "none holds out samples, or none answered" in here.seen("note", level="warning")[0]["text"]
    )


def test_the_devices_test_where_the_coordinator_has_nothing(world: MakeWorld) -> None:
    here = world(recipe(rounds={"count": 1}), shards((5, 9), tested=7), tests=0)
    here.engine().run()
    assert here.rows[0]["accuracy"] == here.rows[0]["device_accuracy"]


def test_uplink_codes_change_the_model_only_a_little(world: MakeWorld) -> None:
    results = {}
    for code in ("fp32", "bf16", "int8"):
        here = world(recipe(wire={**EXACT, "uplink": code, "downlink": code}))
        here.engine().run()
        checkpoint = here.stores[0].checkpoint(here.run)
        assert checkpoint is not None
        results[code] = checkpoint.state.groups["weights"]
    for code in ("bf16", "int8"):
        for name, array in results["fp32"].items():
            assert not np.array_equal(array, results[code][name])
            np.testing.assert_allclose(results[code][name], array, atol=0.05)


def test_a_model_that_does_not_fit_the_data_fails_the_run(world: MakeWorld) -> None:
    record = world(recipe(model={"name": "cnn"})).engine().run()
    assert record.status == "failed"
    assert record.error
    assert record.reason

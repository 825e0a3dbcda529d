"""Buffered rounds on virtual devices: the merges of FedBuff in float64, its limits, its order."""

from __future__ import annotations

import heapq
import json
import math
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from edgefed.algorithms.interface.exchange import Payload
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.exchanges.buffered_answers import Settled, settled_in
from edgefed.coordinator.exchanges.downlink_encoder import DownlinkEncoder
from edgefed.coordinator.exchanges.recorded_order import RecordedOrder
from edgefed.coordinator.models.model_file_contents import file_round
from edgefed.coordinator.rounds.buffered_rounds import BufferedRounds
from edgefed.coordinator.storage.run_store import Store
from edgefed.coordinator.storage.stored_runs import OpenExchange, RunRecord
from edgefed.data.sets.given import given_data
from edgefed.errors import EdgeFedError, UsageError
from edgefed.learn.base.types import Array
from edgefed.learn.modeling.model_file_reader import BEST_FILE
from edgefed.process.clock import SystemClock
from edgefed.seeds import derive
from edgefed.simulator.local_fleet import LocalFleet
from edgefed.simulator.run import Simulation
from edgefed.wire.message_parts import BlobRef
from edgefed.wire.messages import Task
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.exchanges.test_resume import Fuse, PowerCut
from tests.coordinator.fleets import TamperedFleet
from tests.run_fixture import recipe as small_recipe

INPUTS = {"a": 1.0, "b": -0.5, "c": 0.25, "d": -1.5}
TARGETS = {"a": 1.0, "b": -2.0, "c": 3.0, "d": 0.5}
COUNTS = {"a": 1, "b": 3, "c": 2, "d": 1}
SECONDS = {"a": 1.0, "b": 0.5, "c": 2.25, "d": 7.0}
"""Per sample: a device takes 2, 3, 9 and 14 seconds for its two epochs."""
RATE, EPOCHS, ROUNDS = 0.05, 2, 6


def plan(tmp_path: Path, **tables: dict[str, Any]) -> Recipe:
    """Return linear regression with one step for each sample of a device and epoch."""
    file = tmp_path / "speeds.csv"
    rows = "".join(f"{device},{seconds}\n" for device, seconds in SECONDS.items())
    file.write_text(f"device,seconds_per_sample\n{rows}")
    base: dict[str, dict[str, Any]] = {
        "model": {"name": "mlp", "hidden": []},
        "training": {
            "loss": "squared_error",
            "epochs": EPOCHS,
            "batch_size": 1,
            "learning_rate": RATE,
        },
        "rounds": {"count": ROUNDS, "mode": "buffered", "buffer": 2},
        "wire": {"downlink": "fp32", "uplink": "fp32"},
        "simulation": {"workers": 1},
        "evaluation": {"on": "coordinator"},
        "speeds": {"file": str(file)},
    }
    merged = {name: {**base.get(name, {}), **tables.get(name, {})} for name in {*base, *tables}}
    return Recipe.model_validate(merged)


def other_draws(recipe: Recipe) -> Recipe:
    """Return the recipe with a seed that asks another device first."""
    return recipe.model_copy(update={"seed": 2})


class Ended:
    """A simulation that has ended, with its rows and its weights (w, b)."""

    def __init__(self, recipe: Recipe, folder: Path, order: RecordedOrder | None = None) -> None:
        data = {
            device: (
                np.full((COUNTS[device], 1), INPUTS[device], np.float32),
                np.full((COUNTS[device], 1), TARGETS[device], np.float32),
            )
            for device in INPUTS
        }
        test = (np.ones((2, 1), np.float32), np.ones((2, 1), np.float32))
        given = given_data(data, test, recipe)
        clock = SystemClock()
        self.record: RunRecord = (
            Simulation(recipe, folder, clock, given=given, order=order).run().record
        )
        with closing(Store(folder, durable=False)) as store:
            self.rows = store.rounds(self.record.run, details=True)
            checkpoint = store.checkpoint(self.record.run)
        assert checkpoint is not None
        self.left_open = checkpoint.open
        weights = checkpoint.state.groups["weights"]
        self.weights = np.append(weights["out.weight"].ravel(), weights["out.bias"])
        self.order = RecordedOrder.of(self.rows)

    def settled(self, outcome: str) -> list[Settled]:
        """Return the questions that ended so."""
        every = (question for row in self.rows for question in settled_in(row))
        return [question for question in every if question.outcome == outcome]


def local(start: Array, device: str) -> Array:
    """Return (w, b) after the local steps; the loss is (w x + b - t)²."""
    inputs, weights = np.array([INPUTS[device], 1.0]), start.copy()
    for _ in range(EPOCHS * COUNTS[device]):
        weights -= RATE * 2 * (weights @ inputs - TARGETS[device]) * inputs
    return weights


def fedbuff(start: Array, buffer: int, most: int) -> tuple[Array, float, int]:
    """Return the weights, the time and the number of answers that were too old.

    Algorithm 1 of the paper, in float64.
    """
    weights, version, now, old = start.copy(), 0, 0.0, 0
    events = [(EPOCHS * COUNTS[k] * SECONDS[k], k, 0, local(weights, k) - weights) for k in INPUTS]
    heapq.heapify(events)
    held: dict[str, tuple[int, Array]] = {}
    while version < ROUNDS:
        now, device, asked, delta = heapq.heappop(events)
        held[device] = (asked, delta)
        if len(held) < buffer:
            continue
        total = sum(COUNTS[k] for k in held)
        for k, (asked, delta) in held.items():
            factor = round(256 / math.sqrt(1 + version - asked)) / 256
            weights = weights + COUNTS[k] * factor * delta / total
        version += 1
        stale = [k for _, k, asked, _ in events if version - asked > most]
        again, old = [*held, *stale], old + len(stale)
        events = [event for event in events if event[1] not in again]
        for k in again:
            done = now + EPOCHS * COUNTS[k] * SECONDS[k]
            events.append((done, k, version, local(weights, k) - weights))
        heapq.heapify(events)
        held = {}
    return weights, now, old


def first_weights(tmp_path: Path) -> Array:
    """Return the weights that a run begins with: those of a run that changes nothing."""
    still = plan(tmp_path, training={"learning_rate": 1e-30}, rounds={"count": 1})
    return Ended(still, tmp_path / "start").weights.astype(np.float64)


@pytest.mark.parametrize(("buffer", "most"), [(2, 1), (3, 10), (4, 0)])
def test_rounds_are_those_of_the_paper_in_float64(tmp_path: Path, buffer: int, most: int) -> None:
    rounds = {"buffer": buffer, "max_staleness": most}
    ended = Ended(plan(tmp_path, rounds=rounds), tmp_path / "run")
    expected, seconds, old = fedbuff(first_weights(tmp_path), buffer, most)
    assert ended.weights == pytest.approx(expected, rel=2e-5, abs=2e-6)
    assert ended.record.seconds == pytest.approx(seconds)
    assert len(ended.settled("stale")) == old


def test_a_full_fleet_in_every_buffer_is_a_synchronous_round(tmp_path: Path) -> None:
    """With no answer late, a buffer of all devices merges what a cohort of all does."""
    buffered = Ended(plan(tmp_path, rounds={"buffer": 4}), tmp_path / "buffered")
    rounds = {"mode": "synchronous", "buffer": 0}
    together = Ended(plan(tmp_path, rounds=rounds), tmp_path / "synchronous")
    # Devices have copies of one sample, so the different seeds of their tasks change nothing.
    assert buffered.weights.tobytes() == together.weights.tobytes()
    assert buffered.record.seconds == together.record.seconds


def test_a_fast_device_has_at_most_one_answer_in_a_buffer(tmp_path: Path) -> None:
    speeds = plan(tmp_path).speeds.file
    Path(speeds).write_text("device,seconds_per_sample\na,0.01\nb,1\nc,1\nd,1\n")
    recipe = plan(tmp_path)
    Path(speeds).write_text("device,seconds_per_sample\na,0.01\nb,1\nc,1\nd,1\n")
    ended = Ended(recipe, tmp_path / "run")
    for row in ended.rows:
        devices = [question.device for question in settled_in(row)]
        assert len(devices) == len(set(devices)) == 2
    shares = [question.device for question in ended.settled("merged")]
    assert shares.count("a") == ROUNDS  # half of all answers, though it is a hundred times faster


def test_with_a_concurrency_of_one_devices_train_one_after_another(tmp_path: Path) -> None:
    ended = Ended(plan(tmp_path, rounds={"concurrency": 1}), tmp_path / "run")
    merged = [question.device for question in ended.settled("merged")]
    assert set(merged) == set(INPUTS)  # chosen at random
    seconds = sum(EPOCHS * COUNTS[device] * SECONDS[device] for device in merged)
    assert ended.record.seconds == pytest.approx(seconds)


def test_a_deadline_closes_a_buffer_with_its_quorum_and_a_late_device_is_asked_again(
    tmp_path: Path,
) -> None:
    rounds = {"buffer": 4, "deadline": 10.0, "count": 3}
    ended = Ended(plan(tmp_path, rounds=rounds), tmp_path / "run")
    assert ended.record.status == "finished"
    assert [len(settled_in(row)) for row in ended.rows] == [4, 4, 4]
    assert {question.device for question in ended.settled("late")} == {"d"}
    assert ended.record.seconds == 30.0
    assert ended.left_open == ()


def test_a_buffer_below_its_quorum_fails_the_run_after_the_retries(tmp_path: Path) -> None:
    rounds = {"buffer": 4, "deadline": 2.5, "quorum": 1.0, "retries": 1}
    ended = Ended(plan(tmp_path, rounds=rounds), tmp_path / "run")
    assert (ended.record.status, ended.record.error) == ("failed", "round.quorum")
    assert "4 answers" in ended.record.reason


def test_nothing_is_left_open_at_the_end(tmp_path: Path) -> None:
    ended = Ended(plan(tmp_path), tmp_path / "run")
    assert ended.left_open == ()
    assert len(ended.settled("merged")) == 2 * ROUNDS


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """Return the tasks that virtual devices are given from now on."""
    given, put = list[Task](), LocalFleet.put

    def noted(fleet: LocalFleet, exchange: OpenExchange, *, shared: bool = False) -> None:
        given.extend(exchange.tasks)
        put(fleet, exchange, shared=shared)

    monkeypatch.setattr(LocalFleet, "put", noted)
    return given


def test_weights_are_encoded_alike_whichever_device_is_asked_first(
    tmp_path: Path, tasks: list[Task]
) -> None:
    """Rounding is random, and derives from the round whose weights are sent."""
    wire, model = {"downlink": "int8"}, {"hidden": [8]}
    Ended(other_draws(plan(tmp_path, wire=wire, model=model)), tmp_path / "all")
    first, digest = tasks[0].device, tasks[0].blobs["weights"].digest
    tasks.clear()
    one = plan(tmp_path, wire=wire, model=model, rounds={"concurrency": 1})
    Ended(other_draws(one), tmp_path / "one")
    assert tasks[0].device != first
    assert tasks[0].blobs["weights"].digest == digest


def test_the_weights_of_each_round_are_encoded_with_a_seed_of_the_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds, send = set[int](), DownlinkEncoder.send

    def noted(
        encoder: DownlinkEncoder, name: str, payload: Payload, seed: int, devices: Any = ()
    ) -> BlobRef:
        seeds.add(seed)
        return send(encoder, name, payload, seed, devices)

    monkeypatch.setattr(DownlinkEncoder, "send", noted)
    recipe = plan(tmp_path)
    Ended(recipe, tmp_path / "run")
    assert seeds == {derive(recipe.seed, "downlink", "after", ended) for ended in range(ROUNDS)}


def test_each_task_has_a_seed_of_its_device_and_number(tmp_path: Path, tasks: list[Task]) -> None:
    Ended(plan(tmp_path), tmp_path / "run")
    assert len({task.seed for task in tasks}) == len(tasks) > 2 * ROUNDS
    assert all(task.merged_number == task.number - 1 for task in tasks)  # none was too old
    asked = [(task.device, task.number) for task in tasks]
    assert len(set(asked)) == len(asked)
    seeds = {(task.device, task.number): task.seed for task in tasks}
    tasks.clear()
    Ended(plan(tmp_path, rounds={"buffer": 3}), tmp_path / "other")
    assert all(seeds.get((each.device, each.number), each.seed) == each.seed for each in tasks)


def test_the_recorded_order_leads_to_the_same_bits(tmp_path: Path) -> None:
    """Other speeds, which would lead to another order, then make no difference."""
    wire, rounds = {"uplink": "int8", "downlink": "int8"}, {"max_staleness": 1}
    recipe = plan(tmp_path, wire=wire, rounds=rounds)
    first = Ended(recipe, tmp_path / "first")
    assert first.settled("stale")
    Path(recipe.speeds.file).write_text("device,seconds_per_sample\na,9\nb,2\nc,1\nd,1\n")
    other = Ended(recipe, tmp_path / "other")
    again = Ended(recipe, tmp_path / "again", first.order)
    assert other.record.weights_digest != first.record.weights_digest
    assert again.record.weights_digest == first.record.weights_digest


@pytest.mark.parametrize("speeds", [(1.9, 1.1, 3.9, 2.4), (1.6, 1.0, 3.7, 5.4)])
def test_weights_sent_only_to_devices_whose_answers_were_too_old_change_no_bits(
    tmp_path: Path, speeds: tuple[float, ...]
) -> None:
    """The order leaves these devices out; of the second one, their questions are still open."""
    rounds = {"buffer": 1, "max_staleness": 2, "count": 10}
    recipe = plan(tmp_path, wire={"downlink": "int8"}, rounds=rounds, model={"hidden": [8]})
    lines = (f"{device},{seconds}\n" for device, seconds in zip(INPUTS, speeds, strict=True))
    Path(recipe.speeds.file).write_text("device,seconds_per_sample\n" + "".join(lines))
    first = Ended(recipe, tmp_path / "first")
    assert {*range(10)} - first.order.asked.keys(), "no round whose weights nobody's answer is of"
    again = Ended(recipe, tmp_path / "again", first.order)
    assert again.record.weights_digest == first.record.weights_digest


def test_an_order_of_other_devices_or_with_noise_is_refused(tmp_path: Path) -> None:
    order = RecordedOrder({0: {"z": 0}}, {1: {"z": 0}})
    with pytest.raises(UsageError, match="names z") as caught:
        Ended(plan(tmp_path), tmp_path / "run", order)
    assert caught.value.code == "order.devices"
    privacy = {"mechanism": "central", "clip": 1.0, "noise_multiplier": 1.0}
    order = RecordedOrder({0: {"a": 0}}, {1: {"a": 0}})
    with pytest.raises(UsageError) as caught:
        Ended(plan(tmp_path, privacy=privacy), tmp_path / "run", order)
    assert caught.value.code == "order.privacy"


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"rounds": {"buffer": 5}}, "one answer of each device"),
        ({"algorithm": {"name": "scaffold"}}, "control variates"),
        ({"secure_aggregation": {"enabled": True}, "wire": {"uplink": "fp32"}}, "masks"),
        (
            {
                "privacy": {
                    "mechanism": "central",
                    "clip": 1.0,
                    "noise_multiplier": 1.0,
                    "population": 4,
                }
            },
            "no sample",
        ),
        ({"merging": {"rule": "krum", "malicious": 1}}, "needs 5 answers"),
    ],
)
def test_a_recipe_that_cannot_be_buffered_is_refused_with_the_reason(
    tmp_path: Path, tables: dict[str, Any], said: str
) -> None:
    with pytest.raises(EdgeFedError, match=said):
        Ended(plan(tmp_path, **tables), tmp_path / "run")


def test_central_privacy_is_counted_without_sampling_and_shortens_old_updates(
    tmp_path: Path,
) -> None:
    privacy = {"mechanism": "central", "clip": 0.01, "noise_multiplier": 2.0}
    ended = Ended(plan(tmp_path, privacy=privacy), tmp_path / "run")
    rounds = {"mode": "synchronous", "buffer": 0}
    together = Ended(plan(tmp_path, privacy=privacy, rounds=rounds), tmp_path / "synchronous")
    assert ended.record.status == "finished"
    assert ended.record.epsilon == together.record.epsilon


def test_a_robust_rule_and_comparisons_work_on_each_buffer(tmp_path: Path) -> None:
    rounds = {"buffer": 3}
    ended = Ended(
        plan(tmp_path, merging={"rule": "median"}, checks={"norm_factor": 1000.0}, rounds=rounds),
        tmp_path / "run",
    )
    assert ended.record.status == "finished"
    plain = Ended(plan(tmp_path, rounds=rounds), tmp_path / "plain")
    assert ended.record.weights_digest != plain.record.weights_digest


def test_later_tests_of_devices_leave_the_coordinators_scores(tmp_path: Path) -> None:
    evaluation = {"on": "both", "confusion": False}
    simulation = {"holdout": 0.5, "workers": 1}
    rounds = {"count": 12}
    both = plan(tmp_path, evaluation=evaluation, simulation=simulation, rounds=rounds)
    ended = Ended(both, tmp_path / "run")
    evaluation["on"] = "coordinator"
    alone = plan(tmp_path, evaluation=evaluation, simulation=simulation, rounds=rounds)
    losses = [row["loss"] for row in Ended(alone, tmp_path / "alone").rows]
    tested = [row for row in ended.rows if row.get("device_loss") is not None]
    assert len(tested) > 1
    assert tested[0]["round"] < len(ended.rows)
    assert tested[0]["loss"] == losses[tested[0]["round"] - 1], "no device has tested before"
    assert all(row["loss"] != row["device_loss"] for row in tested)


def test_devices_test_a_round_while_later_ones_end(tmp_path: Path) -> None:
    """The slow device would otherwise hold each of them up; scores belong to their round."""
    evaluation = {"on": "devices", "best_metric": "loss", "confusion": False}
    simulation = {"holdout": 0.5, "workers": 1}
    rounds = {"count": 12}
    recipe = plan(tmp_path, evaluation=evaluation, simulation=simulation, rounds=rounds)
    ended = Ended(recipe, tmp_path / "run")
    tested = [row["round"] for row in ended.rows if row["loss"] is not None]
    assert 2 <= len(tested) < 8
    assert tested[-1] == 12
    assert all(row["tested_devices"] == 2 for row in ended.rows if row["round"] in tested)
    folder = tmp_path / "run" / "runs" / ended.record.run
    written = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [(row["round"], row["loss"]) for row in written] == [
        (row["round"], row["loss"]) for row in ended.rows
    ]
    losses = {row["round"]: row["loss"] for row in ended.rows if row["loss"] is not None}
    best = min(losses, key=lambda number: (losses[number], number))
    assert file_round(folder / BEST_FILE) == best


def test_an_answer_that_was_compared_once_is_not_accepted_twice(tmp_path: Path) -> None:
    """Device d sends an update far beyond the others: a buffer of four falls below its quorum."""
    recipe = plan(
        tmp_path,
        rounds={"buffer": 4, "quorum": 1.0, "count": 1, "retries": 1},
        checks={"norm_factor": 1.2},
    )
    ended = Ended(recipe, tmp_path / "run")
    assert (ended.record.status, ended.record.error) == ("failed", "round.quorum")
    assert "of 4 answers" in ended.record.reason
    folder = tmp_path / "run" / "runs" / ended.record.run
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    replies = [each for each in events if each.get("kind") == "reply"]
    accepted = [each["device"] for each in replies if each["outcome"] == "accepted"]
    assert accepted
    assert len(accepted) == len(set(accepted))


@pytest.mark.parametrize(
    ("rounds", "wrong"),
    [
        ({"mode": "bufered", "buffer": 3}, ["mode"]),
        ({"mode": "buffered"}, ["buffer"]),
        ({"buffer": 3, "concurrency": 2}, ["buffer", "concurrency"]),
        ({"mode": "buffered", "buffer": 3, "cohort": 2}, ["cohort"]),
    ],
)
def test_a_key_of_the_other_mode_is_refused(rounds: dict[str, Any], wrong: list[str]) -> None:
    with pytest.raises(ValidationError) as caught:
        Recipe.model_validate({"rounds": rounds})
    assert [str(problem["loc"][-1]) for problem in caught.value.errors()] == wrong


def test_a_question_that_a_comparison_refused_is_closed_with_the_merge(tmp_path: Path) -> None:
    rounds = {"buffer": 4, "quorum": 0.25, "count": 1}
    ended = Ended(plan(tmp_path, rounds=rounds, checks={"norm_factor": 1.2}), tmp_path / "run")
    assert ended.record.status == "finished"
    assert ended.settled("refused")
    assert ended.left_open == ()


def test_an_answer_that_a_restart_made_too_old_is_refused(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill after a merge leaves questions open that it should have closed."""
    rounds = {"count": 3, "mode": "buffered", "buffer": 2, "max_staleness": 0}
    straight = world(small_recipe(rounds=rounds)).engine().run()
    here = world(small_recipe(rounds=rounds))
    with monkeypatch.context() as patched, pytest.raises(PowerCut):
        patched.setattr(BufferedRounds, "_close", lambda *_: Fuse(0)())
        here.engine().run()
    fleet = TamperedFleet(here.devices)
    record = here.engine(fleet).run()
    assert (record.status, record.weights_digest) == ("finished", straight.weights_digest)
    late = [(device, why) for device, outcome, why in fleet.verdicts if outcome == "late"]
    why = "too many rounds have ended since"
    assert late == [("device-02", why), ("device-03", why)]
    first, second, _ = here.store().rounds(here.run, details=True)
    assert {question.outcome for question in settled_in(first)} == {"merged"}
    stale = [(each.device, each.number) for each in settled_in(second) if each.outcome == "stale"]
    again = [("device-02", 1), ("device-03", 1)]  # asked anew at once, and too slow again
    assert stale == [("device-02", 0), ("device-03", 0), *again]

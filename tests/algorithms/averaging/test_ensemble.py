"""The ensemble: models that were trained apart, and the mean of what they predict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.device_side import PredictorEvalJob
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.config.recipes.recipe import Recipe
from edgefed.learn.base.types import Array, Score
from edgefed.learn.training.trainer import ModelPredictions
from tests.algorithms.play import Players, algorithm, asked, bits, planned_for, trainer
from tests.run_fixture import World, recipe, samples, shards


def trained_by(
    half: CompleteAlgorithm[Any], players: Players
) -> tuple[State, list[Answer], Exchange]:
    state = players.start(half)
    planned = players.planned(half, state)
    answers = players.answers(half, planned)
    return half.merge(state, asked(planned), answers), answers, planned


def probabilities(logits: Array) -> Array:
    powers = np.exp(logits.astype(np.float64))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


@pytest.mark.parametrize(
    ("weighting", "weights"), [("uniform", [1, 1, 1, 1]), ("examples", [5, 9, 6, 4])]
)
def test_the_mean_of_the_probabilities_by_hand(weighting: str, weights: list[int]) -> None:
    players, half = Players(), algorithm("ensemble", 1, weighting=weighting)
    state, answers, _ = trained_by(half, players)
    start, inputs = players.trainer.model.weights(), samples(7, 1).inputs
    predict = ModelPredictions(players.trainer)
    each = []
    for answer in answers:
        delta = answer.groups["delta"].arrays
        model = {name: start[name] + delta[name] for name in start}
        each.append(probabilities(predict(model, inputs)))
    wanted = np.average(each, axis=0, weights=weights)
    together = half.predictor(state, predict)(inputs)
    np.testing.assert_allclose(np.exp(together), wanted, rtol=1e-6)
    assert list(half.models(state)) == ["model-0", "model-1", "model-2", "model-3"]
    assert bits(half.weights(state)) == bits(half.models(state)["model-1"]), "of most samples"


def test_with_squared_error_outputs_are_averaged() -> None:
    plan = {"algorithm": {"name": "ensemble"}, "training": {"loss": "squared_error"}}
    half, players = make(Recipe.model_validate(plan)), Players()
    state, inputs = players.start(half), samples(5, 1).inputs
    models = {"model-0": players.trainer.model.weights()}
    models["model-1"] = {name: array + 1 for name, array in models["model-0"].items()}
    state = replace(state, groups={**state.groups, **models}, params={"samples": {"a": 3, "b": 1}})
    predict = ModelPredictions(players.trainer)
    each = [predict(model, inputs) for model in models.values()]
    together = half.predictor(state, predict)(inputs)
    np.testing.assert_allclose(together, (each[0] + each[1]) / 2, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("weighting", ["uniform", "examples"])
def test_a_device_tests_all_models_together(weighting: str) -> None:
    players, half = Players(), algorithm("ensemble", 1, weighting=weighting)
    state, _, _ = trained_by(half, players)
    exchange = half.evaluation(state, players.roster, 1)
    question = exchange.questions[0]
    view = replace(players.view(question.device), test=samples(40, 5))
    test = half.eval_job(players.task(exchange, question), view)
    assert isinstance(test, PredictorEvalJob)
    inputs, predict = samples(40, 5).inputs, ModelPredictions(players.trainer)
    there, here = test.predictor(predict)(inputs), half.predictor(state, predict)(inputs)
    assert bits(there) == bits(here)
    found = players.do(test, view)
    assert isinstance(found, Score)
    right = (here.argmax(axis=1) == samples(40, 5).targets).mean()
    assert found.accuracy == pytest.approx(right)


def test_before_the_round_the_initial_weights_predict() -> None:
    players, half = Players(), algorithm("ensemble", 1)
    state, predict = players.start(half), ModelPredictions(players.trainer)
    start, inputs = players.trainer.model.weights(), samples(5, 1).inputs
    assert bits(half.models(state)) == bits({"model": start})
    np.testing.assert_allclose(
        np.exp(half.predictor(state, predict)(inputs)),
        probabilities(predict(start, inputs)),
        rtol=1e-6,
    )


def test_no_device_weighs_more_than_it_announced() -> None:
    players, half = Players(), algorithm("ensemble", 1, weighting="examples")
    state, _, planned = trained_by(half, players)
    zeros = {name: np.zeros_like(array) for name, array in state.groups["weights"].items()}
    greedy = [Answer(each.device, 10**6, {"delta": Group(zeros)}) for each in planned.questions]
    assert half.merge(state, asked(planned), greedy).params["samples"] == {
        "device-00": 5,
        "device-01": 9,
        "device-02": 6,
        "device-03": 4,
    }


def test_independent_initial_weights_are_known_to_the_coordinator() -> None:
    players, half = Players(), algorithm("ensemble", 1, initial="independent")
    state = players.start(half)
    planned = players.planned(half, state)
    starts = []
    for question in planned.questions:
        work = players.job(half, planned, question)
        starts.append(work.weights)
    zeros = {name: np.zeros_like(array) for name, array in state.groups["weights"].items()}
    still = [Answer(each.device, 3, {"delta": Group(zeros)}) for each in planned.questions]
    after = half.merge(state, asked(planned), still)
    assert bits(list(half.models(after).values())) == bits(starts)
    assert len({each["fc1.weight"].tobytes() for each in starts}) == 4


def test_in_further_rounds_each_device_trains_its_own_model() -> None:
    players, half = Players(), algorithm("ensemble", 2, initial="independent")
    first, _, _ = trained_by(half, players)
    planned = planned_for(half, first, players.roster[1:], 2)
    for number, question in enumerate(planned.questions, start=1):
        work = players.job(half, planned, question)
        assert bits(work.weights) == bits(half.models(first)[f"model-{number}"])
    ones = {name: np.ones_like(array) for name, array in first.groups["weights"].items()}
    moved = Answer("device-02", 6, {"delta": Group(ones)})
    after = half.merge(first, asked(planned), [moved])
    for number in (0, 1, 3):
        assert bits(half.models(after)[f"model-{number}"]) == bits(
            half.models(first)[f"model-{number}"]
        )
    np.testing.assert_allclose(
        after.groups["model-2"]["out.bias"], first.groups["model-2"]["out.bias"] + 1, rtol=1e-6
    )


def test_a_model_that_joins_later_takes_its_place_among_the_others() -> None:
    players, half = Players(), algorithm("ensemble", 2)
    state, start = players.start(half), players.trainer.model.weights()
    for first, devices in ((1.0, (1, 3)), (5.0, (0,))):
        planned = players.planned(half, state)
        answers = [
            Answer(
                f"device-0{n}",
                4,
                {"delta": Group({k: w * 0 + first + n for k, w in start.items()})},
            )
            for n in devices
        ]
        state = half.merge(state, asked(planned), answers)
    moved = [
        float((model["out.bias"] - start["out.bias"])[0]) for model in half.models(state).values()
    ]
    np.testing.assert_allclose(moved, [5, 2, 4], rtol=1e-5)
    assert list(state.params["samples"]) == ["device-00", "device-01", "device-03"]


def test_a_run_saves_all_models_and_tests_them_in_both_places(tmp_path: Path) -> None:
    plan = recipe(algorithm={"name": "ensemble"}, rounds={"count": 1}, evaluation={"on": "both"})
    here = World(tmp_path, plan, shards((5, 9, 6), tested=4))
    record = here.engine().run()
    assert record.status == "finished", record.reason
    (row,) = here.rows
    saved = load_file(here.stores[0].run_folder(here.run) / "model.safetensors")
    assert {name.partition("/")[0] for name in saved} == {"model-0", "model-1", "model-2"}
    network = trainer((4,))
    predict, test = ModelPredictions(network), samples(12, 99)
    models = [
        {name: saved[f"model-{number}/{name}"] for name in network.model.names}
        for number in range(3)
    ]
    mean = np.mean([probabilities(predict(model, test.inputs)) for model in models], axis=0)
    assert row["accuracy"] == pytest.approx((mean.argmax(axis=1) == test.targets).mean())
    assert 0 < row["device_accuracy"] <= 1
    here.close()

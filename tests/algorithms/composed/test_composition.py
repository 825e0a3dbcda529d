"""An algorithm with parts is that algorithm in all that no part has to do with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from edgefed.algorithms.averaged_data.fedmix import FedMix
from edgefed.algorithms.composed.composition import Composition, compose
from edgefed.algorithms.composed.method import Method
from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView, EvalJob, Work
from edgefed.algorithms.interface.exchange import Payload, Question
from edgefed.algorithms.interface.member import Roster
from edgefed.config.recipes.recipe import ModelSection, Recipe
from edgefed.learn.base.types import Tensors
from tests.algorithms.mean_play import after_sharing
from tests.algorithms.play import Players

GROWN = ModelSection.model_validate({"name": "mlp", "hidden": [9]})
ROUNDS = {"count": 3, "cohort": 2, "over_selection": 0.5, "deadline": 77.0}


class Own(FedMix):
    """Says more of itself than FedMix does, and answers training tasks at once."""

    def start(self, weights: Tensors, roster: Roster, seed: int) -> State:
        state = super().start(weights, roster, seed)
        return replace(state, params={"devices": len(roster), "first seed": seed})

    def model(self, state: State) -> ModelSection | None:
        return GROWN if state.round else None

    def models(self, state: State) -> Mapping[str, Tensors]:
        return {f"after {state.round}": self.weights(state)}

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        return Answer(task.device, len(device.train), {})


def composed(kind: type[FedMix] = FedMix, loss: str = "cross_entropy") -> Any:
    values = {"algorithm": {"name": "fedmix"}, "training": {"loss": loss}, "rounds": ROUNDS}
    recipe = Recipe.model_validate(values)
    method = Method.of(recipe, make(recipe).settings)
    half = compose(method.bare(kind, recipe.rounds), method)
    assert isinstance(half, Composition)
    return half


def test_it_has_the_tables_of_its_recipe() -> None:
    half = composed(loss="squared_error")
    assert isinstance(half.settings, FedMix.Settings)
    assert half.training.loss == "squared_error"
    assert (half.rounds.count, half.rounds.deadline) == (3, 77.0)


def test_the_algorithm_starts_from_the_roster_and_the_seed() -> None:
    params = Players().start(composed(Own)).params
    assert (params["devices"], params["first seed"]) == (4, 11)


def test_what_is_said_of_the_model_is_the_algorithm_s() -> None:
    half, players = composed(Own), Players()
    state = players.start(half)
    later = replace(state, round=2)
    assert (half.model(state), half.model(later)) == (None, GROWN)
    assert half.models(later).keys() == {"after 2"}
    plain = composed()
    assert plain.models(state).keys() == {"model"}
    assert plain.models(state)["model"] is plain.weights(state)


def test_no_part_changes_an_answer_that_is_given_at_once() -> None:
    half, players = composed(Own), Players()
    training = players.planned(half, after_sharing(composed(), players))
    question = training.questions[0]
    answer = half.prepare(players.task(training, question), players.view(question.device))
    assert answer == Answer(question.device, len(players.part(question.device)), {})


@pytest.mark.parametrize("part", [False, True])
def test_a_cohort_tests_the_weights(part: bool) -> None:
    """Two devices are wanted, and half as many more are asked; one answer suffices."""
    half, players = composed(), Players()
    state = replace(players.start(half), round=2)
    algorithm = half if part else FedMix(half.settings, half.training, half.rounds)
    found = [algorithm.evaluation(state, players.roster, seed) for seed in range(12)]
    first = found[0]
    assert (first.name, first.round, first.wanted, first.quorum) == ("evaluate", 2, 2, 1)
    assert first.deadline == 77.0
    assert first.payloads == {"weights": Payload(state.groups["weights"])}
    for question in first.questions:
        samples = len(players.part(question.device))
        assert question == Question(question.device, samples, {"weights": "weights"})
    assert {len(each.questions) for each in found} == {3}
    assert len({tuple(each.device for each in one.questions) for one in found}) > 1


@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error"])
def test_a_device_tests_the_weights_by_the_loss_of_the_recipe(loss: str) -> None:
    half, players = composed(loss=loss), Players()
    exchange = half.evaluation(players.start(half), players.roster, 1)
    question = exchange.questions[0]
    task, view = players.task(exchange, question), players.view(question.device)
    job = half.eval_job(task, view)
    assert isinstance(job, EvalJob)
    assert job == EvalJob(task.groups["weights"], view.test, job.loss)
    assert job.loss == loss

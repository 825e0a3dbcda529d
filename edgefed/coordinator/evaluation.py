"""Evaluate a run's model when it is due, on the coordinator's and on the devices' samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from edgefed.algorithms.base import Algorithm, Answer, State
from edgefed.algorithms.evaluation_place import evaluation_place
from edgefed.config.recipe import LossName, Recipe
from edgefed.coordinator.reply_stats import DeviceScores
from edgefed.coordinator.run_model import RunModel
from edgefed.coordinator.run_state import RunState
from edgefed.learn.scoring import score
from edgefed.learn.training import ModelPredictions


class Evaluation:
    """Tests a run's model.

    Args:
        recipe: says when, where and by which loss.
        algorithm: says how its model predicts.
        device_answers: asks the devices to test the model, and returns what they say.
        warn: told what an operator should know.
    """

    def __init__(
        self,
        recipe: Recipe,
        algorithm: Algorithm[Any],
        device_answers: Callable[[RunState], Iterable[Answer]],
        warn: Callable[[str], None],
    ) -> None:
        self._recipe = recipe
        self._algorithm = algorithm
        self._device_answers = device_answers
        self._warn = warn

    def is_due(self, number: int, finishing: bool) -> bool:
        """Return whether the model is tested after a round; ``finishing``: it is the last one."""
        every = self._recipe.evaluation.every
        last = number >= self._recipe.rounds.count or finishing
        return last or (every > 0 and number % every == 0)

    def scores(self, state: RunState) -> dict[str, float]:
        """Return the scores of the state's model by name."""
        where, test = evaluation_place(self._recipe, self._algorithm), state.run_model.test
        scores: dict[str, float] = {}
        if where in ("devices", "both") or not len(test):
            answers = self._device_answers(state)
            on_devices = device_scores(self._recipe, self._algorithm, answers)
            if not on_devices:
                self._warn(f"round {state.state.round}: no device holds out samples for evaluation")
            scores |= on_devices
        if where in ("coordinator", "both") and len(test):
            loss = self._recipe.training.loss
            scores |= coordinator_scores(self._algorithm, loss, state.state, state.run_model)
        return scores


def coordinator_scores(
    algorithm: Algorithm[Any], loss: LossName, state: State, run_model: RunModel
) -> dict[str, float]:
    """Return the scores of a state's model on the coordinator's samples."""
    trainer = run_model.trainers.get(algorithm.model(state))
    predictor = algorithm.predictor(state, ModelPredictions(trainer))
    central = score(predictor, run_model.test, loss)
    accuracy = {} if central.accuracy is None else {"accuracy": central.accuracy}
    return {**accuracy, "loss": central.loss}


def device_scores(
    recipe: Recipe, algorithm: Algorithm[Any], answers: Iterable[Answer]
) -> dict[str, float]:
    """Return the means of the devices' own tests, and those of each mode; empty without any."""
    names = ("loss",) if recipe.training.loss == "squared_error" else ("accuracy", "loss")
    found = DeviceScores(names, recipe.evaluation.weighting or algorithm.evaluation_weighting)
    for answer in answers:
        found.add(answer.samples, answer.metrics)
    if not found.devices:
        return {}
    means = found.means()
    apart = found.means_by_mode()
    return {**means, **{f"device_{name}": value for name, value in means.items()}, **apart}

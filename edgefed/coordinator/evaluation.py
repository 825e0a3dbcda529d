"""Evaluate a run's model when it is due, on the coordinator's and on the devices' samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from edgefed.algorithms.base import Algorithm, Answer
from edgefed.algorithms.evaluation_place import evaluation_place
from edgefed.config.recipe import Recipe
from edgefed.coordinator.reply_stats import DeviceScores
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
            scores |= self._on_devices(state)
        if where in ("coordinator", "both") and len(test):
            scores |= self._on_coordinator(state)
        return scores

    def _on_coordinator(self, state: RunState) -> dict[str, float]:
        trainer = state.run_model.trainers.get(self._algorithm.model(state.state))
        predictor = self._algorithm.predictor(state.state, ModelPredictions(trainer))
        central = score(predictor, state.run_model.test, self._recipe.training.loss)
        accuracy = {} if central.accuracy is None else {"accuracy": central.accuracy}
        return {**accuracy, "loss": central.loss}

    def _on_devices(self, state: RunState) -> dict[str, float]:
        squared = self._recipe.training.loss == "squared_error"
        names = ("loss",) if squared else ("accuracy", "loss")
        weighting = self._recipe.evaluation.weighting or self._algorithm.evaluation_weighting
        found = DeviceScores(names, weighting)
        for answer in self._device_answers(state):
            found.add(answer.samples, answer.metrics)
        if not found.devices:
            self._warn(f"round {state.state.round}: no device holds out samples for evaluation")
            return {}
        means = found.means()
        apart = found.means_by_mode()
        return {**means, **{f"device_{name}": value for name, value in means.items()}, **apart}

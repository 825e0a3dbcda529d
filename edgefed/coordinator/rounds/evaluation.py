"""Evaluate a run's model when it is due, on the coordinator's and on the devices' samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from edgefed.algorithms.composed.evaluation_place import evaluation_place
from edgefed.algorithms.composed.evaluation_reply import (
    ACCURACY_BEFORE,
    CONFUSION,
    COUNTS,
    DENOMINATOR,
    LOSS_BEFORE,
    NUMERATOR,
    TOP_K_HITS,
)
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.recipes.user_functions import metric_name
from edgefed.coordinator.models.run_model import RunModel
from edgefed.coordinator.rounds.reply_stats import DeviceScores
from edgefed.coordinator.rounds.run_state import RunState
from edgefed.coordinator.rounds.scores import NO_SCORES, Scores, counted
from edgefed.evaluation.confusion import Confusion
from edgefed.evaluation.spread import spread
from edgefed.events.history.early_stopping import SAMPLES
from edgefed.learn.base.types import Samples
from edgefed.learn.training.measures import Measures, measures_of
from edgefed.learn.training.scoring import score
from edgefed.learn.training.trainer import ModelPredictions
from edgefed.learn.training.user_metrics import Fraction, divided

VALIDATION = "validation_"
"""How the names of scores begin that are of the coordinator's validation samples."""

UNTESTED = "no device sent the results of a test: none holds out samples, or none answered"


class Evaluation:
    """Tests a run's model.

    Args:
        recipe: states when, where and by which loss.
        algorithm: defines how its model predicts.
        device_answers: asks the devices to test the model, and returns their answers.
        warn: called with messages for the operator.
    """

    def __init__(
        self,
        recipe: Recipe,
        algorithm: CompleteAlgorithm[Any],
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

    def is_on_devices(self, state: RunState) -> bool:
        """Return whether devices test the model."""
        where = evaluation_place(self._recipe, self._algorithm)
        return where in ("devices", "both") or not len(state.run_model.test)

    def scores(self, state: RunState, *, on_devices: bool = True) -> Scores:
        """Return the scores of the state's model; those of devices too if wanted."""
        where, test = evaluation_place(self._recipe, self._algorithm), state.run_model.test
        scores = NO_SCORES
        if on_devices and self.is_on_devices(state):
            # The coordinator's scores come second, so that they win where names are equal
            answers = self._device_answers(state)
            scores |= self.of_devices(state, answers)
        if where in ("coordinator", "both") and len(test):
            scores |= coordinator_scores(
                self._recipe, self._algorithm, state.state, state.run_model
            )
        # Validation samples are the coordinator's, which does not test where devices alone do
        if where != "devices":
            scores |= validation_scores(self._recipe, self._algorithm, state.state, state.run_model)
        return scores

    def of_devices(self, state: RunState, answers: Iterable[Answer]) -> Scores:
        """Return the scores of devices' tests of the state's model."""
        number = state.state.round
        scores = device_scores(self._recipe, self._algorithm, state.run_model, number, answers)
        if not scores:
            self._warn(f"round {number}: {UNTESTED}")
        return scores


def coordinator_scores(
    recipe: Recipe, algorithm: CompleteAlgorithm[Any], state: State, run_model: RunModel
) -> Scores:
    """Return the scores of a state's model on the coordinator's test samples."""
    return _scores_on(run_model.test, recipe, algorithm, state, run_model)


def validation_scores(
    recipe: Recipe, algorithm: CompleteAlgorithm[Any], state: State, run_model: RunModel
) -> Scores:
    """Return the scores of a state's model on the coordinator's validation samples, if any."""
    if run_model.validation is None:
        return NO_SCORES
    scores = _scores_on(run_model.validation, recipe, algorithm, state, run_model)
    return Scores({f"{VALIDATION}{name}": value for name, value in scores.values.items()})


def _scores_on(
    samples: Samples,
    recipe: Recipe,
    algorithm: CompleteAlgorithm[Any],
    state: State,
    run_model: RunModel,
) -> Scores:
    """Return the scores of a state's model on samples of the coordinator."""
    trainer = run_model.trainers.get(algorithm.model(state))
    predictor = algorithm.predictor(state, ModelPredictions(trainer))
    measures = _measures(recipe, run_model)
    central = score(predictor, samples, recipe.training.loss, measures)
    values = {} if central.accuracy is None else {"accuracy": central.accuracy}
    if central.top_k_hits is not None and central.samples:
        values[measures.top_k_name] = central.top_k_hits / central.samples
    parts = [] if central.confusion is None else [central.confusion]
    averages, views = counted("coordinator", state.round, parts)
    own = divided({name: [fraction] for name, fraction in central.fractions.items()})
    return Scores({**values, **averages, **own, "loss": central.loss}, views)


def device_scores(
    recipe: Recipe,
    algorithm: CompleteAlgorithm[Any],
    run_model: RunModel,
    number: int,
    answers: Iterable[Answer],
) -> Scores:
    """Return the scores of the devices' own tests, and means of each mode; empty without any.

    Counts by label are summed, so that each sample counts once; the spread is over devices.
    """
    answers, measures = list(answers), _measures(recipe, run_model)
    # Of a user's own loss only the devices' targets tell whether there are labels.
    labelled = any("accuracy" in answer.metrics for answer in answers)
    top = (measures.top_k_name,) if measures.top_k and labelled else ()
    names = ("accuracy", "loss", *top) if labelled else ("loss",)
    before = (ACCURACY_BEFORE, LOSS_BEFORE)
    names += tuple(name for name in before if any(name in answer.metrics for answer in answers))
    scores = DeviceScores(names, recipe.evaluation.weighting or algorithm.evaluation_weighting)
    parts: list[Confusion] = []
    accuracies: list[float] = []
    tests: dict[str, dict[str, float]] = {}
    for answer in answers:
        # A device that sends no hits counts as none right
        hits = answer.metrics.get(TOP_K_HITS, 0.0) / answer.samples
        measured = {**answer.metrics, **dict.fromkeys(top, hits)}
        scores.add(answer.samples, measured)
        own_scores = {name: measured[name] for name in names if name in measured}
        tests[answer.device] = {SAMPLES: answer.samples, **own_scores}
        accuracies += [answer.metrics["accuracy"]] if "accuracy" in answer.metrics else []
        if CONFUSION in answer.groups:
            parts.append(Confusion(answer.groups[CONFUSION].arrays[COUNTS]))
    if not scores.devices:
        return NO_SCORES
    # The views say how many devices tested, with or without a matrix
    averages, views = counted("devices", number, parts, scores.devices)
    own = {name: _fractions(name, answers) for name in map(metric_name, measures.metrics)}
    means = {**scores.means(), **averages, **divided(own)}
    on_devices = {f"device_{name}": value for name, value in means.items()}
    spreads = spread("device_accuracy", accuracies)
    return Scores({**means, **on_devices, **spreads, **scores.means_by_mode()}, views, tests)


def _fractions(name: str, answers: Sequence[Answer]) -> list[Fraction]:
    """Return each device's fraction of a user's own metric."""
    return [
        (answer.metrics[NUMERATOR + name], answer.metrics[DENOMINATOR + name]) for answer in answers
    ]


def _measures(recipe: Recipe, run_model: RunModel) -> Measures:
    return measures_of(recipe.evaluation, recipe.training.loss, run_model.spec.classes)

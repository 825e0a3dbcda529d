"""IFCA: several models, of which each device trains the one that fits its samples best.

Ghosh, Chung, Yin, Ramchandran: An Efficient Framework for Clustered Federated Learning, NeurIPS
2020, algorithm 1 with model averaging. With K models w_j, in every round:

    k = argmin_j loss_k(w_j)           device k, over its training samples
    delta_k = w_j^k - w_j              after local training from w_j, j its choice
    w_j <- w_j + sum_k p_k delta_k     over the devices that chose j; p_k = n_k / sum n of these

A model that no device chose stays as it is. Model 0 starts from the run's initial weights, the
others from the same values in orders of their own
(``edgefed.learn.modeling.initial_weights``). With a
server optimiser, every model has its memory and its number of steps. With one model this is FedAvg.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from edgefed.algorithms.averaging.fedavg import MOST_SAMPLES, AveragingSettings, FedAvg, delta_role
from edgefed.algorithms.interface.answer import Answer, Group, Remark
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.cohort_sampling import Cohort, draw, draw_testers
from edgefed.algorithms.interface.device_side import (
    Chosen,
    DeviceTask,
    DeviceTest,
    DeviceView,
    LowestLossJob,
    PredictorEvalJob,
    Result,
    Work,
    lowest,
)
from edgefed.algorithms.interface.exchange import Exchange, Finished, Payload, Question, ReplyRole
from edgefed.algorithms.interface.mean_prediction import mean_prediction
from edgefed.algorithms.interface.member import Roster
from edgefed.config.recipes.recipe import EvaluationPlace
from edgefed.config.recipes.sections import LossName
from edgefed.learn.aggregation.exact_mean import ExactMean
from edgefed.learn.base.types import Samples, Tensors
from edgefed.learn.modeling.initial_weights import redrawn
from edgefed.learn.modeling.model import Model
from edgefed.learn.training.scoring import Predict, Predictor, score
from edgefed.wire.tensors import TensorSpec

CHOICE = "cluster"
"""The role of an answer, and the name of its only array: the number of the model."""

CHOICES = "clusters"
STEPS = "steps"
"""The state's parameters: each device's last choice, and the steps of each model."""


class IFCASettings(AveragingSettings):
    """FedAvg's settings, and the number of models."""

    clusters: Annotated[int, Field(ge=1, le=64)] = 2
    """Number of models; a device receives all of them that changed, and sends one."""

    divergence: Literal[False] = False
    """Not measured, because the updates are of several models."""


class IFCA(FedAvg):
    """Clustered models: each device trains and averages with those that chose the same."""

    name = "ifca"
    summary = "Clustered models: each device trains the one with the lowest loss"
    paper = "Ghosh et al., NeurIPS 2020, arXiv 2006.04088"
    late_problem = "its clusters are those of one round"
    averages_updates = True
    takes_user_loss = True
    evaluation_place: EvaluationPlace = "devices"
    Settings: ClassVar[type[IFCASettings]] = IFCASettings
    settings: IFCASettings

    # -- the coordinator ------------------------------------------------------------------------

    def start(self, weights: Tensors, roster: Roster, seed: int) -> State:
        """Start with one model of the given weights, and others drawn from the seed."""
        del roster
        groups: dict[str, Tensors] = {}
        for number in self._numbers:
            groups[model_name(number)] = (
                redrawn(weights, seed, "cluster", number) if number else weights
            )
            groups[_memory_name(number)] = {}
        params = {CHOICES: {}, STEPS: [0] * self.settings.clusters}
        return State(round=0, groups=groups, params=params)

    def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
        """Ask a fresh cohort to ``fit`` one of the models, until the rounds are done."""
        if state.round >= self.rounds.count:
            return Finished()
        cohort = draw(roster, self.rounds, seed)
        first = state.groups[model_name(0)]
        choice = ReplyRole({CHOICE: TensorSpec("int64", (1,))}, self.settings.clusters)
        return replace(
            self._with_models("fit", state.round + 1, cohort, state),
            quorum=cohort.quorum,
            reply_roles={"delta": delta_role(first), CHOICE: choice},
        )

    def reject_reason(self, exchange: Exchange, answer: Answer, model: Model) -> str:
        """Return that an answer chose a model which does not exist."""
        del exchange, model
        if CHOICE not in answer.groups:  # of a test
            return ""
        number = _choice(answer)
        if 0 <= number < self.settings.clusters:
            return ""
        return f"it chose model {number} of {self.settings.clusters}"

    def merge_group(self, answer: Answer) -> str:
        """Return the model that the answer's device chose."""
        return str(_choice(answer))

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        """Step each model along the weighted mean of the deltas of those that chose it."""
        limits = {
            question.device: min(question.samples, MOST_SAMPLES) for question in exchange.questions
        }
        total = max(1, sum(limits.values()))
        means: dict[int, ExactMean] = {}
        choices: dict[str, int] = dict(state.params[CHOICES])
        for answer in answers:
            number, limit = _choice(answer), limits[answer.device]
            mean = means.setdefault(number, ExactMean(state.groups[model_name(number)], total))
            weight = min(answer.samples, limit) if self.settings.weighting == "examples" else 1
            mean.add(answer.groups["delta"].arrays, weight)
            choices[answer.device] = number
        groups, steps = dict(state.groups), list(state.params[STEPS])
        for number in sorted(means):
            steps[number] += 1
            name, memory = model_name(number), _memory_name(number)
            groups[name], groups[memory] = self.stepped(
                groups[name], means[number].mean(), groups[memory], steps[number]
            )
        params = {**state.params, CHOICES: dict(sorted(choices.items())), STEPS: steps}
        return State(exchange.round, groups, params)

    def remarks(self, before: State, exchange: Exchange, after: State) -> tuple[Remark, ...]:
        """Report how many devices chose each model last, where that changed."""
        counts = self._counts(after)
        if counts == self._counts(before):
            return ()
        return (Remark(f"devices by cluster: {', '.join(map(str, counts))}"),)

    def weights(self, state: State) -> Tensors:
        """Return the model that most devices chose last."""
        counts = self._counts(state)
        return state.groups[model_name(counts.index(max(counts)))]

    def models(self, state: State) -> Mapping[str, Tensors]:
        """Return all models."""
        names = [model_name(number) for number in self._numbers]
        return {name: state.groups[name] for name in names}

    def model_shares(self, state: State) -> Mapping[str, float]:
        """Return equal shares."""
        names = self.models(state)
        return dict.fromkeys(names, 1 / len(names))

    def predictor(self, state: State, predict: Predict) -> Predictor:
        """Return the mean of the models' predictions, since no samples show which model fits."""
        models, loss = tuple(self.models(state).values()), self.training.loss
        return lambda inputs: mean_prediction([predict(model, inputs) for model in models], loss)

    def evaluation(self, state: State, roster: Roster, seed: int) -> Exchange:
        """Return the exchange that sends all models to the devices of a cohort."""
        cohort = draw_testers(roster, self.rounds, seed)
        return self._with_models("evaluate", state.round, cohort, state)

    def _with_models(self, name: str, number: int, cohort: Cohort, state: State) -> Exchange:
        models = self.models(state)
        blobs = {model: model for model in models}
        return Exchange(
            name=name,
            round=number,
            questions=tuple(Question(m.device, m.samples, blobs) for m in cohort.members),
            payloads={model: Payload(weights) for model, weights in models.items()},
            wanted=cohort.wanted,
            quorum=1,
            deadline=self.rounds.deadline,
        )

    def _counts(self, state: State) -> list[int]:
        chosen = list(state.params[CHOICES].values())
        return [chosen.count(number) for number in self._numbers]

    # -- the device -----------------------------------------------------------------------------

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        """Train the model with the lowest loss on the device's samples."""
        models = [task.groups[model_name(number)] for number in self._numbers]
        jobs = tuple(self.training_job(weights, task) for weights in models)
        return LowestLossJob(jobs, self.training.loss)

    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        """Send the weight changes, and the number of the chosen model."""
        assert isinstance(result, Chosen)
        groups = {**task.groups, "weights": task.groups[model_name(result.index)]}
        answer = super().answer(replace(task, groups=groups), device, result.trained)
        choice = Group({CHOICE: np.array([result.index], np.int64)}, "fp32")
        return replace(answer, groups={**answer.groups, CHOICE: choice})

    def eval_job(self, task: DeviceTask, device: DeviceView) -> DeviceTest:
        """Choose by the training samples, and test that model on those that are held out."""
        models = [task.groups[model_name(number)] for number in self._numbers]
        loss = self.training.loss

        def chosen(predict: Predict) -> Predictor:
            losses = [_loss_of(model, predict, device.train, loss) for model in models]
            best = models[lowest(losses)]
            return lambda inputs: predict(best, inputs)

        return PredictorEvalJob(chosen, device.test, loss)

    @property
    def _numbers(self) -> range:
        return range(self.settings.clusters)


def model_name(number: int) -> str:
    """Return the name of a model: its group in the state, its payload, its role in a task."""
    return f"cluster-{number}"


def _memory_name(number: int) -> str:
    """Return the state's group that holds the server optimiser's memory of a model."""
    return f"memory-{number}"


def _choice(answer: Answer) -> int:
    return int(answer.groups[CHOICE].arrays[CHOICE][0])


def _loss_of(weights: Tensors, predict: Predict, samples: Samples, loss: LossName) -> float:
    return score(lambda inputs: predict(weights, inputs), samples, loss).loss

"""Personal models: some weights are shared, as by any algorithm, and the others stay on devices.

Which ones is a setting, so that one part is several published methods:

    biased FedAvg   the bias of the output layer is personal
    FedPer          the output layer (Arivazhagan et al. 2019, arXiv 1912.00818)
    FedRep          the output layer, trained before the others (Collins et al., ICML 2021,
                    arXiv 2102.07078)
    LG-FedAvg       the first layers (Liang et al. 2020, arXiv 2001.01523)
    FedBN           all normalisation layers (Li et al., ICLR 2021, arXiv 2102.07623)

A device trains all weights together: the shared ones from the round's, the personal ones from its
last training, or from the run's initial values. It keeps the personal ones as private state and
sends the changes of the others. The inner algorithm never sees a personal weight on the
coordinator; on a device it sees a complete model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from edgefed.algorithms.averaging.training import augment_of, objective_of, schedule_of
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.device_side import (
    DeviceTask,
    DeviceTest,
    DeviceView,
    EvalJob,
    PredictorEvalJob,
    Result,
    TrainedEvalJob,
    Work,
    WorkSequence,
)
from edgefed.algorithms.interface.exchange import Exchange, Finished, Payload
from edgefed.algorithms.interface.member import Roster
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.algorithms.interface.wrapped_algorithm import WrappedAlgorithm
from edgefed.algorithms.private.personal_names import personal_names
from edgefed.config.recipes.recipe import ModelSection, PersonalSection
from edgefed.errors import RecipeError
from edgefed.learn.base.types import Array, Job, Score, Tensors, Trained
from edgefed.learn.modeling.model import Model
from edgefed.learn.training.scoring import Predict, Predictor
from edgefed.seeds import derive

START = "personal-start"
"""The initial personal weights: a group of the state, a payload, and its role in a task."""

ORDER = "personal-order"
"""The state's parameter that holds the names of all weights in the model's order."""

PERSONAL = "personal"
"""The group of a device's private state that holds its personal weights."""

KNOWN, NEW = "known", "new"
"""Modes of a test: of a device that has trained in this run, and of one that has not."""

WEIGHTS = "weights"
DELTA = "delta"
"""Roles of the shared weights in a task, and of their changes in an answer."""


class PersonalModels(WrappedAlgorithm):
    """An algorithm with some weights that stay on the devices.

    Args:
        inner: trains and averages the shared weights.
        section: the recipe's ``[personal]`` table.
    """

    def __init__(self, inner: CompleteAlgorithm[Any], section: PersonalSection) -> None:
        super().__init__(inner)
        # Only devices have the personal weights
        self.evaluation_place = "devices"
        self.keeps_lost_work = True
        if section.keeps_weights:
            self.evaluation_modes = (*inner.evaluation_modes, KNOWN, NEW)
        self._section = section
        self._names: tuple[str, ...] | None = None

    # -- the coordinator ------------------------------------------------------------------------

    def check_recipe(self, section: ModelSection | None) -> None:
        """Check that devices can keep weights with this algorithm.

        Raises:
            RecipeError: ``personal.algorithm``.
        """
        super().check_recipe(section)
        if not self.personal_weights:
            raise RecipeError(
                f"Devices cannot keep personal weights with {self.name}.",
                code="personal.algorithm",
                hint="remove the [personal] table, or choose fedavg or an algorithm that averages"
                " one model as it does; with fedmoe, set algorithm.personal_bias = true",
            )

    def check_model(self, model: Model) -> None:
        """Check that the algorithm can share a part of this model, and note which part.

        Raises:
            RecipeError: ``personal.algorithm`` or ``personal.weights``.
        """
        super().check_model(model)
        self.check_recipe(model.section)
        self._names = personal_names(self._section, model)

    def start(self, weights: Tensors, roster: Roster, seed: int) -> State:
        """Start the algorithm with the shared weights, and keep the others as they are."""
        if self._names is None:
            raise RuntimeError("check_model says which weights are personal; call it first.")
        shared = {name: array for name, array in weights.items() if name not in self._names}
        state = self.inner.start(shared, roster, seed)
        personal = {name: weights[name] for name in self._names}
        return replace(
            state,
            groups={**state.groups, START: personal},
            params={**state.params, ORDER: list(weights)},
        )

    def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
        """Plan the algorithm's exchange, with the initial personal weights beside the shared."""
        planned = self.inner.plan(state, roster, seed)
        return planned if isinstance(planned, Finished) else _with_start(planned, state)

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        """Merge the shared weights."""
        merged = self.inner.merge(state, exchange, answers)
        return replace(
            merged,
            groups={**merged.groups, START: state.groups[START]},
            params={**merged.params, ORDER: state.params[ORDER]},
        )

    def weights(self, state: State) -> Tensors:
        """Return the shared weights, with the initial values of the personal ones."""
        return _whole(self.inner.weights(state), state)

    def models(self, state: State) -> Mapping[str, Tensors]:
        """Return the algorithm's models, each with the initial personal weights."""
        models = self.inner.models(state)
        return {name: _whole(weights, state) for name, weights in models.items()}

    def predictor(self, state: State, predict: Predict) -> Predictor:
        """Return how the algorithm predicts with the initial personal weights."""
        return self.inner.predictor(state, _WholePredict(predict, state))

    def evaluation(self, state: State, roster: Roster, seed: int) -> Exchange:
        """Return the test on devices, with the initial weights for those that have none."""
        return _with_start(self.inner.evaluation(state, roster, seed), state)

    # -- the device -----------------------------------------------------------------------------

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        """Prepare the algorithm's work with the device's own model.

        With ``own_epochs``, the personal weights are trained first, then the shared ones.
        """
        work = self.inner.prepare(_own(task, device), device)
        personal = frozenset(task.groups.get(START, {}))
        if not (self._section.own_epochs and personal and isinstance(work, Job)):
            return work
        shared = frozenset(device.model.names) - personal
        own = replace(
            work,
            schedule=replace(work.schedule, epochs=self._section.own_epochs, max_steps=0),
            seed=derive(work.seed, PERSONAL),
            frozen=work.frozen | shared,
        )
        return WorkSequence((own, _AfterOwn(replace(work, frozen=work.frozen | personal))))

    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        """Answer with the changes of the shared weights; keep the personal ones."""
        if isinstance(result, tuple):
            # The last job trained the shared weights, from the personal ones of the first
            result = result[-1]
        answer = self.inner.answer(_own(task, device), device, result)
        start = task.groups.get(START, {})
        if not start or not isinstance(result, Trained):
            return answer
        delta = answer.groups[DELTA]
        shared = {name: array for name, array in delta.arrays.items() if name not in start}
        return replace(
            answer,
            groups={**answer.groups, DELTA: Group(shared, delta.codec)},
            private={**answer.private, PERSONAL: {name: result.weights[name] for name in start}},
        )

    def eval_job(self, task: DeviceTask, device: DeviceView) -> DeviceTest:
        """Test the device's own model, after local training if the recipe requires it."""
        if task.params.get("mode") == NEW:
            device = replace(device, private=_without_personal(device.private))
        own = _own(task, device)
        test = self.inner.eval_job(own, device)
        if self._section.fine_tune_epochs and len(device.test):
            test = self._fine_tuned(own, device, test)
        return replace(test, mode=_mode(task, device) or test.mode)

    def _fine_tuned(
        self, task: DeviceTask, device: DeviceView, before: DeviceTest
    ) -> TrainedEvalJob:
        """Return the test of the task's complete weights after local training.

        ``before`` is the test of the weights themselves.
        """
        assert not isinstance(before, TrainedEvalJob)
        schedule = schedule_of(self.training, max(1, task.round), task.rounds)
        job = Job(
            weights=task.groups[WEIGHTS],
            objective=objective_of(self.training),
            schedule=replace(schedule, epochs=self._section.fine_tune_epochs, max_steps=0),
            seed=derive(task.seed, "fine-tune"),
            augment=augment_of(self.training, self.images),
        )

        def test(trained: Trained) -> EvalJob | PredictorEvalJob:
            groups = {**task.groups, WEIGHTS: trained.weights}
            test = self.inner.eval_job(replace(task, groups=groups), device)
            assert not isinstance(test, TrainedEvalJob)
            return test

        return TrainedEvalJob(job, test, before=before)


@dataclass(frozen=True)
class _AfterOwn:
    """The training of the shared weights, from the personal ones that were trained before."""

    job: Job

    def __call__(self, results: tuple[Trained | Score, ...]) -> Job:
        """Return the job with the weights of the first result."""
        first = results[0]
        assert isinstance(first, Trained)
        return replace(self.job, weights=first.weights)


@dataclass(frozen=True)
class _WholePredict:
    """Predicts with the initial personal weights beside the shared ones."""

    predict: Predict
    state: State

    def __call__(self, weights: Tensors, inputs: Array) -> Array:
        """Return the logits (n, classes)."""
        return self.predict(_whole(weights, self.state), inputs)

    def with_features(self, weights: Tensors, inputs: Array) -> tuple[Array, Array]:
        """Return the logits (n, classes) and the features (n, width)."""
        return self.predict.with_features(_whole(weights, self.state), inputs)


def _with_start(exchange: Exchange, state: State) -> Exchange:
    """Return an exchange with the initial personal weights in every task that has weights.

    They never change, so a device downloads them once.
    """
    start = state.groups[START]
    if not start or not any(WEIGHTS in question.blobs for question in exchange.questions):
        return exchange
    questions = tuple(
        replace(question, blobs={**question.blobs, START: START})
        if WEIGHTS in question.blobs
        else question
        for question in exchange.questions
    )
    payloads = {**exchange.payloads, START: Payload(start, "fp32")}
    return replace(exchange, questions=questions, payloads=payloads)


def _whole(shared: Tensors, state: State) -> Tensors:
    """Return a complete model: the shared weights and the initial personal ones."""
    known = {**state.groups[START], **shared}
    return {name: known[name] for name in state.params[ORDER]}


def _own(task: DeviceTask, device: DeviceView) -> DeviceTask:
    """Return a task whose weights are the device's own model; one without weights as it is."""
    start = task.groups.get(START, {})
    if not start:
        return task
    known = {**task.groups[WEIGHTS], **(device.private.get(PERSONAL) or start)}
    weights = {name: known[name] for name in device.model.names}
    return replace(task, groups={**task.groups, WEIGHTS: weights})


def _mode(task: DeviceTask, device: DeviceView) -> str:
    """Return whether the device has personal weights of its own; nothing where none are."""
    if START not in task.groups:
        return ""
    return KNOWN if PERSONAL in device.private else NEW


def _without_personal(private: Mapping[str, Tensors]) -> dict[str, Tensors]:
    """Return a device's private state as if it had not trained."""
    return {name: group for name, group in private.items() if name != PERSONAL}

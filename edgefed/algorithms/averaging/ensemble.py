"""An ensemble: every device trains a model of its own, and all of them predict together.

A baseline of matched averaging (Wang, Yurochkin, Sun, Papailiopoulos, Khazaeni: Federated Learning
with Matched Averaging, ICLR 2020, table 1). Nothing is averaged but predictions:

    w_j                                 device j, after local training from the initial weights
    p(y | x) = sum_j p_j softmax(f(x; w_j))_y

with p_j = 1/J, or n_j / sum_i n_i. In further rounds each device trains its own model further. The
result is J models: the coordinator holds all of them in memory, the model file has their size, and
each device that tests them is sent all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from edgefed.algorithms.averaging.fedavg import MOST_SAMPLES, delta_role, difference
from edgefed.algorithms.averaging.training import augment_of, loss_of, schedule_of
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.base import AlgorithmSettings, State
from edgefed.algorithms.interface.cohort_sampling import draw, draw_testers
from edgefed.algorithms.interface.device_side import (
    DeviceTask,
    DeviceTest,
    DeviceView,
    PredictorEvalJob,
    Result,
    Work,
)
from edgefed.algorithms.interface.exchange import Exchange, Finished, Payload, Question
from edgefed.algorithms.interface.mean_prediction import mean_prediction
from edgefed.algorithms.interface.member import Roster
from edgefed.algorithms.interface.optional_interfaces import DeviceTests, RecipeNeeds, SavedModels
from edgefed.learn.base.types import Job, Tensors, Trained
from edgefed.learn.modeling.initial_weights import redrawn
from edgefed.learn.steps.capabilities import is_single_pass
from edgefed.learn.training.scoring import Predict, Predictor
from edgefed.seeds import derive

INITIAL = "initial"
"""A task's parameter: the seed of the device's own initial weights, if it has any."""

MODELS = "models"
SAMPLES = "samples"
"""The roles of a test: the tensors of all models, as ``model-0/fc1.weight``; and the samples that
each model was trained on, int64 (models,). The state's parameter has these by device, sorted."""


class EnsembleSettings(AlgorithmSettings):
    """Settings of ``ensemble``."""

    initial: Literal["shared", "independent"] = "shared"
    """Whether devices start from the same initial weights, or each from weights of its own."""

    weighting: Literal["examples", "uniform"] = "uniform"
    """Weigh the probabilities of each device's model by its number of samples, or all equally."""


class Ensemble(SavedModels[EnsembleSettings], DeviceTests[EnsembleSettings], RecipeNeeds):
    """Models that are trained separately and predict together."""

    name = "ensemble"
    summary = "Train one model per device, and predict with all of them together"
    paper = "a baseline of Wang et al., ICLR 2020, arXiv 2002.06440"
    late_problem = "it trains one round"
    Settings: ClassVar[type[EnsembleSettings]] = EnsembleSettings

    # -- the coordinator ------------------------------------------------------------------------

    def can_carry_state(self) -> bool:
        """Return whether the loss calls the model once per step."""
        return is_single_pass(loss_of(self.training))

    def start(self, weights: Tensors, roster: Roster, seed: int) -> State:
        """Start with the initial weights alone."""
        del roster
        params = {"seed": derive(seed, "ensemble"), SAMPLES: {}}
        return State(round=0, groups={"weights": weights}, params=params)

    def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
        """Ask a cohort to ``fit``, each device its own model."""
        if state.round >= self.rounds.count:
            return Finished()
        cohort = draw(roster, self.rounds, seed)
        payloads: dict[str, Payload] = {}
        questions = []
        for member in cohort.members:
            is_known = member.device in state.params[SAMPLES]
            name = f"weights-{member.device}" if is_known else "weights"
            payloads[name] = Payload(_known(state, member.device))
            params = self._params(state, member.device)
            questions.append(Question(member.device, member.samples, {"weights": name}, params))
        return Exchange(
            name="fit",
            round=state.round + 1,
            questions=tuple(questions),
            payloads=payloads,
            wanted=cohort.wanted,
            quorum=cohort.quorum,
            deadline=self.rounds.deadline,
            reply_roles={"delta": delta_role(state.groups["weights"])},
        )

    def _params(self, state: State, device: str) -> dict[str, int]:
        if self.settings.initial == "shared" or device in state.params[SAMPLES]:
            return {}
        return {INITIAL: derive(state.params["seed"], INITIAL, device)}

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        """Store the model of every device that answered; those of others stay."""
        questions = {question.device: question for question in exchange.questions}
        samples = dict(state.params[SAMPLES])
        models = {device: _known(state, device) for device in samples}
        for answer in answers:
            question = questions[answer.device]
            start = _start(_known(state, answer.device), question.params)
            models[answer.device] = _sum(start, answer.groups["delta"].arrays)
            samples[answer.device] = min(answer.samples, question.samples, MOST_SAMPLES)
        # Sorted, so that a model's number does not depend on when its device answered
        ordered = {device: samples[device] for device in sorted(samples)}
        groups = {model_name(number): models[device] for number, device in enumerate(ordered)}
        params = {**state.params, SAMPLES: ordered}
        return State(exchange.round, {"weights": state.groups["weights"], **groups}, params)

    def weights(self, state: State) -> Tensors:
        """Return the model that was trained on most samples; at first, the initial weights."""
        samples = state.params[SAMPLES]
        most = max(samples.values(), default=0)
        return next(
            (_known(state, device) for device, count in samples.items() if count == most),
            state.groups["weights"],
        )

    def models(self, state: State) -> Mapping[str, Tensors]:
        """Return all models."""
        names = [model_name(number) for number in range(len(state.params[SAMPLES]))]
        return {name: state.groups[name] for name in names} or {"model": state.groups["weights"]}

    def model_shares(self, state: State) -> Mapping[str, float]:
        """Return equal shares, or those of the samples, as ``weighting`` says."""
        by_examples = self.settings.weighting == "examples"
        counts = [count if by_examples else 1 for count in _counts(state)]
        return {model_name(number): n / sum(counts) for number, n in enumerate(counts)}

    def predictor(self, state: State, predict: Predict) -> Predictor:
        """Return the mean of the models' predicted probabilities."""
        models = list(self.models(state).values())
        return self._together(models, _counts(state), predict)

    def evaluation(self, state: State, roster: Roster, seed: int) -> Exchange:
        """Return the exchange that sends all models to the devices of a cohort."""
        cohort = draw_testers(roster, self.rounds, seed)
        tensors = {
            f"{name}/{key}": array
            for name, model in self.models(state).items()
            for key, array in model.items()
        }
        samples = {SAMPLES: np.array(_counts(state), np.int64)}
        blobs = {MODELS: MODELS, SAMPLES: SAMPLES}
        return Exchange(
            name="evaluate",
            round=state.round,
            questions=tuple(Question(m.device, m.samples, blobs) for m in cohort.members),
            payloads={MODELS: Payload(tensors), SAMPLES: Payload(samples)},
            wanted=cohort.wanted,
            quorum=1,
            deadline=self.rounds.deadline,
        )

    def _together(
        self, models: Sequence[Tensors], samples: Sequence[int], predict: Predict
    ) -> Predictor:
        """Return the joint predictor of models; ``samples`` is empty before the first round."""
        weights = samples if self.settings.weighting == "examples" and len(samples) else None
        loss = self.training.loss
        return lambda inputs: mean_prediction(
            [predict(model, inputs) for model in models], loss, weights
        )

    # -- the device -----------------------------------------------------------------------------

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        """Train from the initial weights on the device's samples."""
        return Job(
            weights=_start(task.groups["weights"], task.params),
            objective=loss_of(self.training),
            schedule=schedule_of(self.training, task.round, task.rounds),
            seed=task.seed,
            augment=augment_of(self.training, self.images),
        )

    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        """Send the weight changes."""
        assert isinstance(result, Trained)
        start = _start(task.groups["weights"], task.params)
        return Answer(
            device=task.device,
            samples=result.samples,
            groups={"delta": Group(difference(result.weights, start))},
            metrics={"loss": result.loss, "steps": float(result.steps)},
        )

    def eval_job(self, task: DeviceTask, device: DeviceView) -> DeviceTest:
        """Test all models together."""
        models: dict[str, Tensors] = {}
        for key, array in task.groups[MODELS].items():
            name, _, tensor = key.partition("/")
            models.setdefault(name, {})[tensor] = array
        samples = task.groups[SAMPLES][SAMPLES].tolist()
        networks = list(models.values())
        return PredictorEvalJob(
            lambda predict: self._together(networks, samples, predict),
            device.test,
            self.training.loss,
        )


def model_name(number: int) -> str:
    """Return the name of a model: its group in the state, and its place in the model file."""
    return f"model-{number}"


def _counts(state: State) -> list[int]:
    """Return the samples of each model."""
    return list(state.params[SAMPLES].values())


def _known(state: State, device: str) -> Tensors:
    """Return a device's model; the initial weights, if it has none."""
    samples = state.params[SAMPLES]
    if device not in samples:
        return state.groups["weights"]
    return state.groups[model_name(list(samples).index(device))]


def _start(weights: Tensors, params: Mapping[str, Any]) -> Tensors:
    """Return the weights from which a device trains."""
    return redrawn(weights, params[INITIAL], INITIAL) if INITIAL in params else weights


def _sum(start: Tensors, delta: Tensors) -> Tensors:
    return {name: np.add(array, delta[name]) for name, array in start.items()}

"""Federated mixture of experts: K models for the fleet, and a private gate on each device.

Reisser, Louizos, Gavves, Welling: Federated Mixture of Experts, 2021, algorithms 1 and 2. The paper
calls it FedMix, which is the name of another method here. A global table gives the shares q(z|y) of
the experts z for a label y, and device s uses them by its mixture q(z|s) = sum_y p(y|s) q(z|y).

    coordinator  sends the table and the experts with q(z|s) >= 0.9 eta / K     (plan, here)
    device       trains these, the table, and its gate, which it keeps          (expert_device_half)
                 by the objective                           (learn/objectives/expert_mixture)
                 and answers with the changes of the experts it uses, and its mixture
    coordinator  averages each expert by p(s|z), and takes a step of Adam       (expert_merging)

K = 1 is FedAvg with that server optimiser.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from edgefed.algorithms.averaging.fedavg import MAX_DELTA, delta_role, difference
from edgefed.algorithms.averaging.training import (
    augment_of,
    loss_of,
    refuse_label_settings,
    schedule_of,
)
from edgefed.algorithms.experts.expert_device_half import (
    EXPERTS,
    FITTED,
    KNOWN,
    MARGINAL,
    ExpertDeviceHalf,
)
from edgefed.algorithms.experts.expert_load import ExpertLoad, expert_remarks, expert_view, load_of
from edgefed.algorithms.experts.expert_merging import merged, sample_limits
from edgefed.algorithms.experts.expert_records import (
    BEGUN,
    COLLECT,
    EXPERT,
    GATE,
    MIXTURE,
    MIXTURES,
    PHI,
    SEED,
    STEPS,
    TABLE,
    TABLE_STEPS,
    KnownMixture,
    experts_of,
    memory_of,
    mixtures_of,
    output_classes,
    output_weight,
    output_width,
    role,
)
from edgefed.algorithms.experts.expert_reseeding import reseeded
from edgefed.algorithms.experts.expert_settings import ExpertSettings
from edgefed.algorithms.experts.expert_start import from_updates, independent
from edgefed.algorithms.experts.gate_collection import GateCollection, collected_gates, no_gates
from edgefed.algorithms.experts.marginal_gates import likely_shares, marginal
from edgefed.algorithms.interface.answer import Answer, Group, Remark
from edgefed.algorithms.interface.base import AlgorithmSettings, State
from edgefed.algorithms.interface.cohort_sampling import Cohort, draw, draw_testers
from edgefed.algorithms.interface.device_side import (
    DeviceTask,
    DeviceTest,
    DeviceView,
    Result,
    Work,
)
from edgefed.algorithms.interface.exchange import Exchange, Finished, Payload, Question, ReplyRole
from edgefed.algorithms.interface.exchange_part import ExchangePart
from edgefed.algorithms.interface.member import Member, Roster
from edgefed.algorithms.interface.optional_interfaces import DeviceTests, RecipeNeeds, SavedModels
from edgefed.config.recipes.recipe import EvaluationPlace, EvaluationWeighting, ModelSection
from edgefed.errors import DataError, RecipeError
from edgefed.events.base.method_tables import MethodTable
from edgefed.learn.base.mixture_table import HYSTERESIS
from edgefed.learn.base.types import Array, Job, Tensors, Trained
from edgefed.learn.modeling.model import Model
from edgefed.learn.training.mixture_prediction import mixture_scores
from edgefed.learn.training.scoring import Predict, Predictor
from edgefed.seeds import generator
from edgefed.wire.tensors import TensorSpec

UPDATE = "update"
"""The exchange in which all devices train the same weights, with ``start = "updates"``."""


class FedMoe(SavedModels[ExpertSettings], DeviceTests[ExpertSettings], RecipeNeeds):
    """A mixture of experts with private gates."""

    name = "fedmoe"
    summary = "Expert models, of which each device uses its own mixture by a private gate"
    paper = "Reisser et al., 2021, arXiv 2107.06724"
    late_problem = "its experts and gates are those of one round"
    averages_updates = True
    evaluation_weighting: EvaluationWeighting = "devices"
    evaluation_place: EvaluationPlace = "devices"
    evaluation_modes = (KNOWN, FITTED, MARGINAL)
    Settings: ClassVar[type[AlgorithmSettings]] = ExpertSettings

    def needed_columns(self) -> tuple[str, ...]:
        """Return the column that the experts are conditioned on, if it is one."""
        return (self.settings.condition,) if self.settings.has_column else ()

    def parts(self) -> tuple[ExchangePart, ...]:
        """Return the part that collects gates after the last round, if enabled."""
        if not self.settings.collect_gates or self.settings.experts == 1:
            return ()
        densities = self.settings.collect_densities
        return (GateCollection(self.settings.experts, self.planned_rounds, densities),)

    # -- the coordinator ------------------------------------------------------------------------

    def check_recipe(self, section: ModelSection | None) -> None:
        """Check that the recipe trains a mixture with a loss that it has."""
        if self.training.loss != "cross_entropy":
            raise RecipeError(
                "A mixture of experts is trained with cross-entropy only.",
                code="algorithm.loss",
                hint='set training.loss = "cross_entropy", or choose another algorithm',
            )
        if not self._is_plain:
            refuse_label_settings(self.training, "A mixture of experts has a loss of its own")

    def check_model(self, model: Model) -> None:
        """Check that the model has features for a gate, and classes."""
        self.check_recipe(model.section)
        if self._is_plain:
            return
        if model.has_batch_norm:
            raise RecipeError(
                "Experts cannot have batch normalisation, whose statistics are not trained.",
                code="algorithm.model",
                hint='set model.norm = "group"',
            )
        if kept := model.buffer_names:
            raise RecipeError(
                f"Experts cannot have weights that are not trained, such as {kept[0]}.",
                code="algorithm.model",
                hint="compute constants in the model's code, or register them as not persistent",
            )
        try:
            layer = model.output_layer
        except DataError as error:
            raise RecipeError(error.message, code=error.code, hint=error.hint) from error
        if output_weight(model.weights()).shape != tuple(layer.module.weight.shape):
            raise RecipeError(
                "The output layer is not the last layer of the model.",
                code="model.features",
                hint="end the model in its output layer",
            )

    def start(self, weights: Tensors, roster: Roster, seed: int) -> State:
        """Start with different experts, an even table, and no optimiser memory."""
        del roster
        count = self.settings.experts
        groups = {role(k): expert for k, expert in enumerate(independent(weights, count, seed))}
        if not self._is_plain and self._conditions(weights):
            groups[TABLE] = {PHI: np.zeros((self._conditions(weights), count), np.float32)}
        if self.settings.gates == "averaged" and not self._is_plain:
            groups[GATE] = {
                "weight": np.zeros((output_width(weights), count), np.float32),
                "bias": np.zeros(count, np.float32),
            }
        memory: dict[str, Tensors] = {memory_of(name): {} for name in groups}
        begun = self.settings.start == "independent" or count == 1
        params = {STEPS: [0] * count, TABLE_STEPS: 0, MIXTURES: {}, SEED: seed, BEGUN: begun}
        return State(0, {**groups, **memory}, params)

    def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
        """Ask a fresh cohort to train, each device the experts that it uses."""
        if state.round >= self.rounds.count:
            return Finished()
        if not state.params[BEGUN]:
            return self._first_updates(state, roster)
        cohort = draw(roster, self.rounds, seed)
        roles = {role(k): replace(self._delta(state), optional=True) for k in self._numbers}
        if self.settings.experts == 1:
            roles = {role(0): self._delta(state)}
        for group in (TABLE, GATE):
            if group in state.groups:
                specs = {name: _spec(array) for name, array in state.groups[group].items()}
                roles[group] = ReplyRole(specs, MAX_DELTA, trained=True)
        shares = {name: _shares_spec(self.settings) for name in ("kept", "raw")}
        # Shares are rounded to float32, so one may come out just above 1
        roles[MIXTURE] = ReplyRole(shares, 1.001)
        return replace(self._exchange("fit", state, cohort), reply_roles=roles)

    def _exchange(self, name: str, state: State, cohort: Cohort) -> Exchange:
        """Return an exchange that sends each device its experts and the shared arrays."""
        shared = {group: group for group in (TABLE, GATE) if group in state.groups}
        known = mixtures_of(state)
        questions = []
        for member in cohort.members:
            sent = self._sent(state, member, known.get(member.device))
            blobs = {**{role(k): role(k) for k in sent}, **shared}
            params = {EXPERTS: list(sent)}
            questions.append(Question(member.device, member.samples, blobs, params))
        named = {blob for question in questions for blob in question.blobs}
        payloads = {
            group: Payload(state.groups[group], "fp32" if group == TABLE else None)
            for group in sorted(named)
        }
        return Exchange(
            name=name,
            round=state.round + (name != "evaluate"),
            questions=tuple(questions),
            payloads=payloads,
            wanted=cohort.wanted,
            quorum=cohort.quorum,
            deadline=self.rounds.deadline,
        )

    def _sent(self, state: State, member: Member, known: KnownMixture | None) -> tuple[int, ...]:
        """Return the numbers of the experts that a device is sent."""
        count, most = self.settings.experts, self.settings.most_experts or self.settings.experts
        if known is None:
            # Different devices begin with different experts, and each always with the same
            first = int(generator(state.params[SEED], "experts", member.device).integers(count))
            return tuple(sorted((first + k) % count for k in range(min(most, count))))
        least = HYSTERESIS * self.settings.prune / count
        used = [k for k in self._numbers if known.shares[k] >= least]
        if self.settings.permanent_prune:
            used = [k for k in used if known.shares[k] > 0]
        return tuple(sorted(sorted(used, key=lambda k: (-known.shares[k], k))[:most]))

    def _first_updates(self, state: State, roster: Roster) -> Exchange:
        """Ask devices to train the first expert's weights."""
        able = [member for member in roster if member.samples > 0]
        order = generator(state.params[SEED], "update").permutation(len(able))
        asked = [able[k] for k in sorted(order[: self.settings.start_devices])]
        questions = tuple(
            Question(member.device, member.samples, {"weights": role(0)}) for member in asked
        )
        return Exchange(
            name=UPDATE,
            round=state.round + 1,
            questions=questions,
            payloads={role(0): Payload(state.groups[role(0)])},
            wanted=len(asked),
            quorum=max(1, round(self.rounds.quorum * len(asked))),
            deadline=self.rounds.deadline,
            preparatory=True,
            reply_roles={"delta": self._delta(state)},
        )

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        """Step each expert along the mean of its users' changes."""
        if exchange.name == UPDATE:
            return self._begun(state, exchange, answers)
        after = merged(self.settings, state, exchange, answers)
        return reseeded(self.settings, state, after)

    def _begun(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        """Return the state whose experts begin from the first updates."""
        limits = sample_limits(exchange)
        given = [
            replace(answer, samples=min(answer.samples, limits[answer.device]))
            for answer in answers
        ]
        if not given:
            return state
        count, seed = self.settings.experts, state.params[SEED]
        experts = from_updates(state.groups[role(0)], count, given, seed)
        groups = {role(k): expert for k, expert in enumerate(experts)}
        return State(state.round, {**state.groups, **groups}, {**state.params, BEGUN: True})

    def reject_reason(self, exchange: Exchange, answer: Answer, model: Model) -> str:
        """Return why an answer's shares and experts do not belong together, or nothing."""
        del model
        if MIXTURE not in exchange.reply_roles:
            return ""
        mixture = answer.groups[MIXTURE].arrays
        asked = next(
            question for question in exchange.questions if question.device == answer.device
        )
        for name in ("raw", "kept"):
            shares = mixture[name].astype(np.float64)
            if shares.min() < 0 or abs(float(shares.sum()) - 1) > 1e-3:
                return f"its {name} shares are not shares of sum 1"
        used = {role(k) for k in np.flatnonzero(mixture["kept"] > 0)}
        if used != {group for group in answer.groups if group.startswith(EXPERT)}:
            return "it does not contain the experts that it says it uses"
        if not used <= {role(k) for k in asked.params[EXPERTS]}:
            return "it uses an expert that it was not sent"
        return ""

    def remarks(self, before: State, exchange: Exchange, after: State) -> tuple[Remark, ...]:
        """Report that an expert is dead, or that one has nearly all of the load."""
        if exchange.name == UPDATE:
            return ()
        count = self.settings.experts
        loads = (ExpertLoad.of(mixtures_of(state), count) for state in (before, after))
        return expert_remarks(after.round, *loads)

    def view(self, state: State) -> tuple[MethodTable, ...]:
        """Return the experts, the shares of labels, and the devices' mixtures."""
        return expert_view(self.settings, state)

    def weights(self, state: State) -> Tensors:
        """Return the weights of the most used expert."""
        load = load_of(mixtures_of(state), self.settings.experts)
        return state.groups[role(int(np.argmax(load)))]

    def models(self, state: State) -> Mapping[str, Tensors]:
        """Return the experts' weights, and the table."""
        experts = experts_of(state, self.settings.experts)
        if len(experts) == 1:
            return {"model": experts[0]}
        table = {TABLE: state.groups[TABLE]} if TABLE in state.groups else {}
        return {**{role(k): expert for k, expert in enumerate(experts)}, **table}

    def model_shares(self, state: State) -> Mapping[str, float]:
        """Return the load; nothing where gates of devices weigh the experts for each sample."""
        count = self.settings.experts
        if count == 1 or collected_gates(state) is not None:
            return {}
        load = load_of(mixtures_of(state), count)
        return {role(k): share for k, share in enumerate(load)}

    def predictor(self, state: State, predict: Predict) -> Predictor:
        """Return the coordinator's predictor: by collected gates, or else by the load."""
        experts = experts_of(state, self.settings.experts)
        if (given := collected_gates(state)) is not None:
            shares = likely_shares(state, self.settings.density_draws)
            return marginal(dict(enumerate(experts)), given, shares)(predict)
        load = np.asarray(load_of(mixtures_of(state), len(experts)))

        def predicted(inputs: Array) -> Array:
            logits = {k: predict(weights, inputs) for k, weights in enumerate(experts)}
            return mixture_scores(logits, np.tile(load, (len(inputs), 1)))

        return predicted

    def evaluation(self, state: State, roster: Roster, seed: int) -> Exchange:
        """Ask a cohort to test, each device with the experts that it uses."""
        cohort = draw_testers(roster, self.rounds, seed)
        return replace(self._exchange("evaluate", state, cohort), quorum=1)

    def evaluation_in_mode(self, state: State, asked: Exchange, mode: str) -> Exchange:
        """Make every device test in one mode; without labels, by all experts and others' gates."""
        asked = super().evaluation_in_mode(state, asked, mode)
        if mode != MARGINAL:
            return asked
        given = collected_gates(state)
        if given is None:
            raise no_gates()
        groups = {role(k): state.groups[role(k)] for k in self._numbers}
        payloads = {name: Payload(tensors) for name, tensors in {**groups, COLLECT: given}.items()}
        blobs = {name: name for name in payloads}
        every = (
            replace(question, blobs=blobs, params={**question.params, EXPERTS: list(self._numbers)})
            for question in asked.questions
        )
        return replace(asked, questions=tuple(every), payloads=payloads)

    def _delta(self, state: State) -> ReplyRole:
        return delta_role(state.groups[role(0)])

    def _conditions(self, weights: Tensors) -> int:
        """Return the number of rows of the table."""
        return self.settings.conditions(output_classes(weights))

    @property
    def _numbers(self) -> range:
        return range(self.settings.experts)

    @property
    def _is_plain(self) -> bool:
        """Whether a device trains a single model and nothing beside it."""
        return self.settings.experts == 1 and not self.settings.personal_bias

    # -- the device -----------------------------------------------------------------------------

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        """Train the experts that came with the task, their shares and the gate."""
        if task.question == UPDATE:
            return Job(
                weights=task.groups["weights"],
                objective=loss_of(self.training),
                schedule=schedule_of(self.training, task.round, task.rounds),
                seed=task.seed,
                augment=augment_of(self.training, self.images),
            )
        return self._half(task, device).job()

    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        """Send the changes; keep the gate."""
        assert isinstance(result, Trained)
        if task.question == UPDATE:
            delta = difference(result.weights, task.groups["weights"])
            return Answer(task.device, result.samples, {"delta": Group(delta)})
        return self._half(task, device).answer(result)

    def eval_job(self, task: DeviceTask, device: DeviceView) -> DeviceTest:
        """Test with the device's gate, or with one that is fitted for the test."""
        return self._half(task, device).test()

    def _half(self, task: DeviceTask, device: DeviceView) -> ExpertDeviceHalf:
        return ExpertDeviceHalf(self.settings, self.training, self.images, task, device)


def _spec(array: Array) -> TensorSpec:
    return TensorSpec(str(array.dtype), array.shape)


def _shares_spec(settings: ExpertSettings) -> TensorSpec:
    return TensorSpec("float32", (settings.experts,))

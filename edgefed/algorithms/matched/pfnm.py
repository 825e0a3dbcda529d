"""PFNM: hidden units of devices' perceptrons are matched, then averaged; the width adapts.

Yurochkin, Agarwal, Ghosh, Greenewald, Hoang, Khazaeni: Bayesian Nonparametric Federated Learning of
Neural Networks, ICML 2019. In every round,

    w_j <- gather(w, a_j)               device j: its own units of the global network
    w_j <- argmin F_j(w) + mu/2 |w - w_j|^2      by local training; mu = 0 in the first round
    a_1, ..., a_J, w <- match(w_1, ..., w_J)      layer by layer, from the last hidden one down

with a_j the assignment of device j's units to atoms, the units of the global network, each of which
is the mean of the units assigned to it. One round is the paper's one-shot method. A device without
an assignment, because it is new or did not answer in the last round, takes the atoms that most
devices hold. ``edgefed.learn.matching.mlp`` matches; docs/matched-averaging.md has the formulas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from edgefed.algorithms.averaging.class_shares import (
    LABELS,
    ShareOf,
    class_shares,
    label_counts_of,
    labels_role,
    wrong_counts,
)
from edgefed.algorithms.averaging.fedavg import delta_role, difference
from edgefed.algorithms.averaging.training import augment_of, objective_of, schedule_of
from edgefed.algorithms.interface.answer import Answer, Group, Remark
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.cohort_sampling import draw
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView, Result, Work
from edgefed.algorithms.interface.exchange import Exchange, Finished, Payload, Question
from edgefed.algorithms.interface.member import Roster
from edgefed.algorithms.interface.optional_interfaces import RecipeNeeds, SavedModels
from edgefed.algorithms.matched.growth import bound_remarks, growth_metric
from edgefed.algorithms.matched.matched_layers import matched_table
from edgefed.algorithms.matched.matching_settings import MatchingSettings
from edgefed.algorithms.matched.pfnm_records import PfnmRecords, own_start
from edgefed.config.recipes.recipe import ModelSection
from edgefed.errors import RecipeError
from edgefed.events.base.method_tables import MethodTable
from edgefed.learn.base.types import Job, Objective, Tensors, Trained
from edgefed.learn.matching.mlp import NetworkPrior, match_perceptrons
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.network_groups import permutation_groups
from edgefed.learn.objectives.proximal import Proximal
from edgefed.seeds import derive, generator


class PfnmSettings(MatchingSettings):
    """Settings of ``pfnm``."""

    initial: Literal["shared", "independent"] = "shared"
    """Whether devices start the first round from the same initial weights, or each from weights of
    its own."""

    mu: Annotated[float, Field(ge=0, le=100)] = 1e-5
    """Strength of the L2 term that pulls a device's weights towards its part of the global network,
    from the second round on."""

    bias_mean: Annotated[float, Field(ge=-100, le=100)] = 0.1
    """Prior mean of biases; that of weights is 0."""

    last_layer: ShareOf = "classes"
    """The weight of a device in the output layer: for each class its share of the samples of that
    class, where its owner shares label counts; its share of all ``samples``; or the same for all
    (``uniform``)."""


ASSIGNMENT = "assignment"
"""The role of a task: the atom of each of the device's units, int64 by permutation group."""

INITIAL = "initial"
MATCHED = "matched"
"""A task's parameters: the seed of the device's own initial weights, if it has any; and whether
the global network was matched before."""


class Pfnm(SavedModels[PfnmSettings], RecipeNeeds):
    """Matched averaging of multilayer perceptrons."""

    name = "pfnm"
    summary = "Match the hidden units of devices' MLPs before averaging them"
    paper = "Yurochkin et al., ICML 2019, arXiv 1905.12022"
    late_problem = "it matches the models of one cohort"
    takes_user_loss = True
    Settings: ClassVar[type[PfnmSettings]] = PfnmSettings
    _section: ModelSection | None = None

    # -- the coordinator ------------------------------------------------------------------------

    def check_recipe(self, section: ModelSection | None) -> None:
        """Check that the recipe's model is a perceptron.

        Raises:
            RecipeError: ``algorithm.model``.
        """
        if section is None or section.name != "mlp":
            raise _no_perceptron("the recipe's model is another one")

    def check_model(self, model: Model) -> None:
        """Check that the model is a perceptron with hidden layers, and note its settings.

        Raises:
            RecipeError: ``algorithm.model``.
        """
        section = model.section
        self.check_recipe(section)
        assert section is not None  # refused
        if not permutation_groups(section, model.shape, model.classes).widths:
            raise _no_perceptron("the recipe's has none")
        self._section = section

    def start(self, weights: Tensors, roster: Roster, seed: int) -> State:
        """Start with the initial weights, of which every device holds all units."""
        del roster
        return PfnmRecords.first(weights, self._section, derive(seed, "pfnm")).kept_in(0)

    def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
        """Ask a fresh cohort to ``fit`` its parts of the global network."""
        if state.round >= self.rounds.count:
            return Finished()
        records, cohort = PfnmRecords.of(state), draw(roster, self.rounds, seed)
        payloads = {"weights": Payload(records.weights)}
        questions = []
        for place, member in enumerate(cohort.members):
            known = member.device in records.assignments
            # Named by place: names by device would be kept for all that ever took part.
            name = f"{ASSIGNMENT}-{place}" if known else ASSIGNMENT
            payloads[name] = Payload(records.assignment(member.device), "fp32")
            blobs = {"weights": "weights", ASSIGNMENT: name}
            params = self._params(records, member.device)
            questions.append(Question(member.device, member.samples, blobs, params))
        roles = {"delta": delta_role(records.start(cohort.members[0].device))}
        if self._asks_labels:
            roles[LABELS] = labels_role(records.outputs)
        return Exchange(
            name="fit",
            round=state.round + 1,
            questions=tuple(questions),
            payloads=payloads,
            wanted=cohort.wanted,
            quorum=cohort.quorum,
            deadline=self.rounds.deadline,
            reply_roles=roles,
            model=records.section,
        )

    def _params(self, records: PfnmRecords, device: str) -> dict[str, Any]:
        params: dict[str, Any] = {MATCHED: records.matched > 0}
        if self.settings.initial == "independent" and not records.matched:
            params[INITIAL] = derive(records.seed, INITIAL, device)
        return params

    def reject_reason(self, exchange: Exchange, answer: Answer, model: Model) -> str:
        """Return that label counts are negative, where they are."""
        del exchange, model
        return wrong_counts(answer)

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        """Match the networks of all devices that answered; without an answer, keep the state.

        All of them are in memory at once.
        """
        records = PfnmRecords.of(state)
        params = {question.device: question.params for question in exchange.questions}
        announced = {question.device: question.samples for question in exchange.questions}
        # Sorted, so that the matching does not depend on the order of answers
        known = sorted(answers, key=lambda answer: answer.device)
        if not known:
            return records.kept_in(exchange.round)
        networks = [
            _moved(records.start(answer.device, params[answer.device].get(INITIAL)), answer)
            for answer in known
        ]
        shares = class_shares(known, announced, records.outputs, self.settings.last_layer)
        prior = NetworkPrior(
            self.settings.match_settings,
            self.settings.bias_mean,
            self.settings.match_settings(1).average == "map",
            lambda layer: generator(records.seed, "match", exchange.round, layer),
        )
        match = match_perceptrons(networks, records.groups, shares, prior)
        devices = [answer.device for answer in known]
        return records.after(exchange.round, devices, match).kept_in(exchange.round)

    def remarks(self, before: State, exchange: Exchange, after: State) -> tuple[Remark, ...]:
        """Report the widths that changed, and those that reached their bound."""
        del exchange
        then, now = PfnmRecords.of(before), PfnmRecords.of(after)
        if now.matched == then.matched:
            return ()
        remarks = []
        if now.widths != then.widths:
            widths = ", ".join(f"{name} {width}" for name, width in now.widths.items())
            remarks.append(Remark(f"units of the global network: {widths}"))
        return (*remarks, *bound_remarks(self.settings, now.matched, now.layers, then.layers))

    def weights(self, state: State) -> Tensors:
        """Return the weights of the global network."""
        return state.groups["weights"]

    def model(self, state: State) -> ModelSection | None:
        """Return the global network, with the widths that were found."""
        return PfnmRecords.of(state).matched_section

    def view(self, state: State) -> tuple[MethodTable, ...]:
        """Return the widths of all hidden layers."""
        records = PfnmRecords.of(state)
        number, devices = records.matched, len(records.assignments)
        matched = len(records.layers) if number else 0
        return (matched_table(records.layers, number, matched, devices, records.growth),)

    def round_metrics(self, state: State) -> Mapping[str, float]:
        """Return the growth of the global model."""
        return growth_metric(PfnmRecords.of(state).growth)

    # -- the device -----------------------------------------------------------------------------

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        """Train the device's part of the global network, or its own initial weights."""
        return Job(
            weights=_start(task, device),
            objective=self._objective(task),
            schedule=schedule_of(self.training, task.round, task.rounds),
            seed=task.seed,
            augment=augment_of(self.training, self.images),
        )

    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        """Send the weight changes, and the number of samples of each label."""
        assert isinstance(result, Trained)
        groups, ledger = label_counts_of(task, device) if self._asks_labels else ({}, ())
        return Answer(
            device=task.device,
            samples=result.samples,
            groups={"delta": Group(difference(result.weights, _start(task, device))), **groups},
            metrics={"loss": result.loss, "steps": float(result.steps)},
            ledger=ledger,
        )

    def _objective(self, task: DeviceTask) -> Objective:
        """Return the loss, with a pull to the matched weights where there are any."""
        loss = objective_of(self.training)
        is_pulled = task.params[MATCHED] and self.settings.mu > 0
        return Proximal(loss, self.settings.mu) if is_pulled else loss

    @property
    def _asks_labels(self) -> bool:
        """Whether devices are asked for label counts."""
        has_labels = self.training.loss == "cross_entropy"
        return has_labels and self.settings.last_layer == "classes"


def _start(task: DeviceTask, device: DeviceView) -> Tensors:
    section = device.model.section
    assert section is not None
    groups = permutation_groups(section, device.model.shape, device.model.classes)
    seed = task.params.get(INITIAL)
    return own_start(task.groups["weights"], groups, task.groups[ASSIGNMENT], seed)


def _moved(start: Tensors, answer: Answer) -> Tensors:
    """Return a device's trained weights, float64."""
    delta = answer.groups["delta"].arrays
    return {name: array.astype(np.float64) + delta[name] for name, array in start.items()}


def _no_perceptron(why: str) -> RecipeError:
    return RecipeError(
        f"pfnm matches the hidden layers of the model mlp, and {why}.",
        code="algorithm.model",
        hint='set model.name = "mlp" and model.hidden, or choose fedma, which matches other'
        " networks too",
    )

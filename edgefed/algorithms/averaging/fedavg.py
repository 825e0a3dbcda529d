"""FedAvg: devices train locally, and the coordinator averages their weight updates.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep Networks
from Decentralized Data, AISTATS 2017. In round t, with S_t the devices that answered:

    delta_k = w_t^k - w_t               device k, after E epochs of SGD from w_t
    Delta_t = sum_k p_k delta_k         p_k = n_k / sum_j n_j, j in S_t
    w_{t+1} = w_t + Delta_t             or a server optimiser's step along Delta_t

Answers may come late (``rounds.mode = "buffered"``; Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek,
Huba: Federated Learning with Buffered Asynchronous Aggregation, AISTATS 2022). With delta_k from
w_{t - s_k}, they then count less, and the step is shorter:

    Delta_t = sum_k a(s_k) p_k delta_k  a(s) = 1 / sqrt(1 + s), p_k as above

The proximal term (FedProx) and the server optimiser (FedOpt) are settings and can be combined.
``fedprox`` and ``fedopt`` are this algorithm with other defaults for these settings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from edgefed.algorithms.averaging.training import augment_of, objective_of, schedule_of
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.base import AlgorithmSettings, State
from edgefed.algorithms.interface.cohort_sampling import draw
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView, Result, Work
from edgefed.algorithms.interface.exchange import (
    STALENESS_BITS,
    Exchange,
    Finished,
    Payload,
    Question,
    ReplyRole,
    staleness_factor,
)
from edgefed.algorithms.interface.member import Roster
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.files.mapped import release
from edgefed.learn.aggregation.exact_mean import ExactMean
from edgefed.learn.aggregation.server_optimizers import ServerOptimizer
from edgefed.learn.aggregation.update_divergence import UpdateDivergence
from edgefed.learn.base.types import Job, Objective, Tensors, Trained
from edgefed.learn.objectives.proximal import Proximal
from edgefed.learn.steps.capabilities import is_single_pass
from edgefed.wire.tensors import specs_of

MOST_SAMPLES = 2**22
"""Largest weight of a device, even if it announces more samples: the weights of 16,000 such devices
can still be summed exactly."""

MAX_DELTA = 64.0
"""Largest magnitude of a value in a delta; a training that moves a weight further has diverged."""

DIVERGENCE = "divergence"
"""Key of a state's ``params`` and of a round's metrics: the gradient divergence."""

RUNNING = ("running_mean", "running_var", "num_batches_tracked")
"""Last words of batch normalisation's names: statistics are averaged, never optimised, or Adam
could make a variance negative."""


class AveragingSettings(AlgorithmSettings):
    """Settings of every algorithm that averages deltas."""

    weighting: Literal["examples", "uniform"] = "examples"
    """Weigh each device by its number of samples, or all devices equally."""

    mu: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Strength of FedProx's proximal term; 0 for none."""

    server: Literal["sgd", "momentum", "adam", "yogi", "adagrad"] = "sgd"
    """Server optimiser; ``sgd`` with learning rate 1 is plain averaging."""

    server_learning_rate: Annotated[float, Field(gt=0, le=100)] = 1.0
    """Step size of the server optimiser."""

    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Decay of the server's first moment."""

    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.99
    """Decay of the server's second moment."""

    tau: Annotated[float, Field(gt=0)] = 1e-3
    """Added to the root of the second moment; larger is less adaptive."""

    adam_variant: Literal["reddi", "kingma"] = "reddi"
    """``reddi``: without bias correction, as in FedOpt; ``kingma``: with it, as in Adam's paper."""

    divergence: bool = False
    """Whether every round measures how much the devices' updates differ in direction."""


@dataclass(frozen=True)
class Contribution:
    """The part of an answer in the mean.

    Attributes:
        arrays: the update, divided by ``length`` where it is trained.
        length: of the local steps; the mean is multiplied by the mean length.
    """

    arrays: Tensors
    length: float = 1.0


class FedAvg(CompleteAlgorithm[AveragingSettings]):
    """Weighted averaging of local training, with every optional interface for subclasses."""

    name = "fedavg"
    summary = "Average what the devices learned, weighted by their samples"
    paper = "McMahan et al., AISTATS 2017, arXiv 1602.05629"
    averages_updates = True
    merges_late = True
    personal_weights = True
    private_updates = True
    takes_user_loss = True
    sums_deltas = True
    Settings: ClassVar[type[AlgorithmSettings]] = AveragingSettings

    def can_carry_state(self) -> bool:
        """Return whether the objective calls the model once per step."""
        return is_single_pass(self.objective())

    def start(self, weights: Tensors, roster: Roster, seed: int) -> State:
        """Start with the given weights and no optimiser memory."""
        del roster, seed
        return State(round=0, groups={"weights": weights, "memory": {}})

    def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
        """Ask a fresh cohort to ``fit`` the current weights, until the rounds are done."""
        if state.round >= self.rounds.count:
            return Finished()
        cohort = draw(roster, self.rounds, seed)
        return Exchange(
            name="fit",
            round=state.round + 1,
            questions=tuple(
                Question(member.device, member.samples, {"weights": "weights"})
                for member in cohort.members
            ),
            payloads={"weights": Payload(state.groups["weights"])},
            wanted=cohort.wanted,
            quorum=cohort.quorum,
            deadline=self.rounds.deadline,
            reply_roles={"delta": delta_role(state.groups["weights"])},
        )

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        """Step along the weighted mean of the deltas; without an answer, keep the weights."""
        weights = state.groups["weights"]
        limits = {
            question.device: min(question.samples, MOST_SAMPLES) for question in exchange.questions
        }
        total = max(1, sum(limits.values()))
        factors = {
            question.device: staleness_factor(question.staleness) for question in exchange.questions
        }
        is_late = any(question.staleness for question in exchange.questions)
        mean = ExactMean(weights, total, STALENESS_BITS if is_late else 0)
        directions = UpdateDivergence(trained(weights), total) if self.settings.divergence else None
        lengths, samples = list[float](), 0
        for answer in answers:
            limit = limits[answer.device]
            weight = min(answer.samples, limit) if self.settings.weighting == "examples" else 1
            added = self.contribution(answer, exchange)
            mean.add(added.arrays, weight * factors[answer.device])
            lengths.append(weight * added.length)
            samples += weight
            if directions is not None:
                directions.add(added.arrays, weight)
            del answer, added  # before the next one is decoded
        if not samples:
            return State(exchange.round, state.groups, state.params)
        # The mean length, sum_k p_k a_k of FedNova; 1 where no update is divided
        length = math.fsum(lengths) / samples
        # Divided by all samples, so that late answers make the step shorter
        delta = lengthened(mean.mean(samples, last=True), length)
        after, memory = self.stepped(weights, delta, state.groups["memory"], exchange.round)
        groups = {**state.groups, "weights": after, "memory": memory}
        params = {**state.params, **self.measured(length)}
        if directions is not None:
            params[DIVERGENCE] = directions.total()
        return State(exchange.round, groups, params)

    def measured(self, length: float) -> Mapping[str, float]:
        """Return parameters of the state about a merge with this mean length of local steps."""
        del length
        return {}

    def contribution(self, answer: Answer, exchange: Exchange) -> Contribution:
        """Return the part of an answer in the mean."""
        del exchange
        return Contribution(answer.groups["delta"].arrays)

    def round_metrics(self, state: State) -> Mapping[str, float]:
        """Return the gradient divergence of the round, where it is measured."""
        divergence = state.params.get(DIVERGENCE)
        return {} if divergence is None else {DIVERGENCE: divergence}

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        """Train from the round's weights on the device's samples."""
        return self.training_job(task.groups["weights"], task)

    def training_job(self, weights: Tensors, task: DeviceTask) -> Job:
        """Return the task's local training from these weights."""
        return Job(
            weights=weights,
            objective=self.objective(),
            schedule=schedule_of(self.training, task.round, task.rounds),
            seed=task.seed,
            augment=augment_of(self.training, self.images),
        )

    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        """Send the weight changes."""
        assert isinstance(result, Trained)
        return Answer(
            device=task.device,
            samples=result.samples,
            groups={"delta": Group(difference(result.weights, task.groups["weights"]))},
            metrics={"loss": result.loss, "steps": float(result.steps)},
        )

    def objective(self) -> Objective:
        """Return the local objective: the loss, with the proximal term where ``mu`` > 0."""
        return self.proximal(objective_of(self.training))

    def proximal(self, objective: Objective) -> Objective:
        """Return an objective with the proximal term, where ``mu`` > 0."""
        return Proximal(objective, self.settings.mu) if self.settings.mu > 0 else objective

    def stepped(
        self, weights: Tensors, delta: Tensors, memory: Tensors, number: int
    ) -> tuple[Tensors, Tensors]:
        """Return weights and memory after the server optimiser's step of this number, from 1."""
        settings = self.settings
        optimizer = ServerOptimizer(
            name=settings.server,
            learning_rate=settings.server_learning_rate,
            beta1=settings.beta1,
            beta2=settings.beta2,
            tau=settings.tau,
            adam_variant=settings.adam_variant,
        )
        moved = trained(weights)
        plain = [name for name in weights if name not in moved]
        return optimizer.step(weights, delta, memory, number, plain)


def trained(weights: Tensors) -> Tensors:
    """Return the weights that are trained, without the statistics of batch normalisation."""
    return {name: w for name, w in weights.items() if name.rpartition(".")[2] not in RUNNING}


def lengthened(delta: Tensors, length: float) -> Tensors:
    """Return an update whose trained arrays are multiplied by a length."""
    if length == 1.0:
        return delta
    return {**delta, **{n: (a * length).astype(a.dtype) for n, a in trained(delta).items()}}


def delta_role(weights: Tensors) -> ReplyRole:
    """Return the required form of a delta of these weights."""
    return ReplyRole(specs_of(weights), MAX_DELTA, trained=True)


def difference(after: Tensors, before: Tensors) -> Tensors:
    """Return ``after - before``, array by array, in their own dtypes."""
    changes = {}
    for name, array in before.items():
        changes[name] = np.subtract(after[name], array)
        release(array)  # until then, a mapped one takes memory
    return changes

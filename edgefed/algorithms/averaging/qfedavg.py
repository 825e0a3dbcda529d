"""q-FedAvg: devices with a higher loss count more, so that accuracies become more even.

Li, Sanjabi, Beirami, Smith: Fair Resource Allocation in Federated Learning, ICLR 2020,
arXiv 1905.10497, algorithm 2. With L = 1/η, the loss F_k of the round's weights w on device k's
samples, and the update u_k = w_k - w of its local training:

    h_k = q F_k^(q-1) L ||u_k||² + F_k^q
    w <- w + sum_k F_k^q u_k / sum_k h_k

This is the paper's step with Δw_k = -L u_k, both sums divided by L. q = 0 is FedAvg with uniform
weights. Losses are taken relative to the mean of the round before, which cancels in the step and
keeps F_k^q within the exact mean's grid.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from edgefed.algorithms.averaging.fedavg import AveragingSettings, FedAvg, trained
from edgefed.algorithms.averaging.training import schedule_of
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import AlgorithmSettings, State
from edgefed.algorithms.interface.device_side import (
    DeviceTask,
    DeviceView,
    EvalJob,
    Result,
    Work,
    WorkSequence,
)
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.learn.aggregation.exact_mean import ExactMean
from edgefed.learn.base.types import Job, Score
from edgefed.learn.modeling.model import Model

LOSS_BEFORE = "loss_before"
"""The metric of an answer that holds F_k."""

MEAN_LOSS = "mean_loss_before"
"""In the state's params: the mean of F_k in the round before; 1 before the first."""

FRACTION_BITS = 16
LARGEST = 64.0
"""Weights are multiples of 2^-16 up to this, for a device whose loss is far above the mean."""


class QFedAvgSettings(AveragingSettings):
    """How even the accuracies are to be; the step is the paper's."""

    q: Annotated[float, Field(ge=0, le=15)] = 0.1
    """How much more devices with a higher loss count; 0 is FedAvg. The paper uses 0.001 to 5; with
    many local steps, large values make the step of a round very short."""

    weighting: Literal["uniform"] = "uniform"
    """The loss alone weighs devices."""

    server: Literal["sgd"] = "sgd"
    """The coordinator's step is the paper's."""

    server_learning_rate: Annotated[float, Field(ge=1, le=1)] = 1.0
    """Its size."""

    divergence: Literal[False] = False
    """The divergence of updates is not measured."""


class QFedAvg(FedAvg):
    """Averaging that weighs devices by powers of their losses."""

    name = "qfedavg"
    summary = "FedAvg in which devices with a higher loss count more"
    paper = "Li et al., ICLR 2020, arXiv 1905.10497"
    late_problem = "its weights need the losses of one global model"
    Settings: ClassVar[type[AlgorithmSettings]] = QFedAvgSettings
    settings: QFedAvgSettings

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        """Step along the weighted sum of updates, divided by the sum of all h_k."""
        weights, q = state.groups["weights"], self.settings.q
        reference = state.params.get(MEAN_LOSS, 1.0)
        smoothness = 1 / schedule_of(self.training, exchange.round, self.rounds.count).learning_rate
        most = max(1, len(exchange.questions))
        mean = ExactMean(weights, most * int(LARGEST), FRACTION_BITS)
        losses, denominators = list[float](), list[float]()
        for answer in answers:
            update, loss = answer.groups["delta"].arrays, answer.metrics[LOSS_BEFORE]
            moved = trained(update)
            relative = max(loss / reference, 2.0**-FRACTION_BITS)
            # A weight is at least one step of the grid, and at most what its sums have room for
            weight = min(max(relative**q, 2.0**-FRACTION_BITS), LARGEST)
            mean.add(update, weight)
            length = math.fsum(float(np.square(a, dtype=np.float64).sum()) for a in moved.values())
            # L ||u_k||², relative to the mean loss as the losses are
            drift = smoothness * length / reference
            # h_k = F_k^q + q F_k^(q-1) L ||u_k||², where F_k^(q-1) is weight / relative
            denominators.append(weight + q * weight / relative * drift)
            losses.append(loss)
        if not losses:
            return State(exchange.round, state.groups, state.params)
        step = mean.mean()
        # sum_k F_k^q u_k / sum_k h_k, from the weighted mean of the updates
        factor = mean.weight / math.fsum(denominators)
        step |= {n: (a * factor).astype(a.dtype) for n, a in trained(step).items()}
        after, memory = self.stepped(weights, step, state.groups["memory"], exchange.round)
        groups = {**state.groups, "weights": after, "memory": memory}
        known = math.fsum(losses) / len(losses)
        return State(exchange.round, groups, {**state.params, MEAN_LOSS: known or 1.0})

    def reject_reason(self, exchange: Exchange, answer: Answer, model: Model) -> str:
        """Return that an answer lacks the loss that weighs it."""
        del exchange, model
        if "delta" not in answer.groups:  # of a test
            return ""
        loss = answer.metrics.get(LOSS_BEFORE, -1.0)
        return "" if loss >= 0 else f"its loss before training is {loss:g}"

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        """Measure the loss of the round's weights on the device's samples, then train."""
        job = super().prepare(task, device)
        assert isinstance(job, Job)
        return WorkSequence((EvalJob(job.weights, device.train, self.training.loss), job))

    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        """Send the update, and the loss before it."""
        assert isinstance(result, tuple)
        before, after = result
        assert isinstance(before, Score)
        answer = super().answer(task, device, after)
        return replace(answer, metrics={**answer.metrics, LOSS_BEFORE: before.loss})

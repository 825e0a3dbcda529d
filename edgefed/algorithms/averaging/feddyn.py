"""FedDyn: each device's objective is regularised dynamically, so that local optima agree.

Acar, Zhao, Matas, Mattina, Whatmough, Saligrama: Federated Learning Based on Dynamic
Regularization, ICLR 2021, arXiv 2111.04263, algorithm 1. In a round with the devices P of m, from
the weights w, with e_k the sum of all updates of device k that were merged (-g_k / α of the paper):

    w_k = argmin L_k(v) + α/2 ||v - (w - e_k)||²            device k, by local training from w
    e_k <- e_k + (w_k - w)                                  its drift
    s <- s + |P| / m mean_P (w_k - w)                       the mean drift (-h / α of the paper)
    w <- mean_P w_k + s

A device adds its update to e_k only if its answer was merged, so that s stays the mean of all e_k.
α = 0 is FedAvg with uniform weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from edgefed.algorithms.averaging.fedavg import AveragingSettings, FedAvg, trained
from edgefed.algorithms.averaging.scaffold import CLIENTS, zeros
from edgefed.algorithms.averaging.training import objective_of
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import AlgorithmSettings, State
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView, Result, Work
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.algorithms.interface.member import Roster
from edgefed.learn.base.types import Job, Objective, Tensors, Trained
from edgefed.learn.objectives.proximal import Proximal, centred

DRIFT = "drift"
"""Group of the state: s; and of a device's private state: e_k."""


class FedDynSettings(AveragingSettings):
    """The strength of the regularisation, and the number of devices; the mean is the paper's."""

    alpha: Annotated[float, Field(ge=0, le=100)] = 0.01
    """Strength of the dynamic regularisation; 0 is FedAvg. The paper tunes it over 0.1, 0.01 and
    0.001."""

    clients: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """m: number of devices over all rounds; 0 for those that are there when the run starts."""

    weighting: Literal["uniform"] = "uniform"
    """All devices count equally."""

    mu: Annotated[float, Field(ge=0, le=0)] = 0.0
    """No further proximal term: ``alpha`` is the strength of FedDyn's own."""

    server: Literal["sgd"] = "sgd"
    """The coordinator's step is the paper's."""

    server_learning_rate: Annotated[float, Field(ge=1, le=1)] = 1.0
    """Its size."""


class FedDyn(FedAvg):
    """Averaging with dynamic regularisation."""

    name = "feddyn"
    summary = "FedAvg whose local objectives are shifted until local optima agree"
    paper = "Acar et al., ICLR 2021, arXiv 2111.04263"
    late_problem = "its gradient terms are those of one round"
    takes_user_loss = True
    keeps_if_accepted = True
    Settings: ClassVar[type[AlgorithmSettings]] = FedDynSettings
    settings: FedDynSettings

    # -- the coordinator -------------------------------------------------------------------------

    def start(self, weights: Tensors, roster: Roster, seed: int) -> State:
        """Begin without a drift."""
        state = super().start(weights, roster, seed)
        clients = self.settings.clients or max(1, len(roster))
        groups = {**state.groups, DRIFT: zeros(weights)}
        return replace(state, groups=groups, params={**state.params, CLIENTS: clients})

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        """Step along the mean update and the mean drift after it."""
        count = 0

        def counted() -> Iterable[Answer]:
            nonlocal count
            for answer in answers:
                count += 1
                yield answer

        merged = super().merge(state, exchange, counted())
        if not count or self.settings.alpha == 0:
            return merged
        before, mean = state.groups["weights"], merged.groups["weights"]
        share = np.float32(count / state.params[CLIENTS])
        # s <- s + |P| / m mean_P (w_k - w)
        drift = {
            name: part + share * (mean[name] - before[name])
            for name, part in state.groups[DRIFT].items()
        }
        # w <- mean_P w_k + s, with the new s
        weights = {**mean, **{name: mean[name] + part for name, part in drift.items()}}
        return replace(merged, groups={**merged.groups, "weights": weights, DRIFT: drift})

    # -- a device --------------------------------------------------------------------------------

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        """Train towards the round's weights less the device's own drift."""
        job = super().prepare(task, device)
        assert isinstance(job, Job)
        if self.settings.alpha == 0:
            return job
        centre = {name: job.weights[name] - e for name, e in own_drift(task, device).items()}
        return replace(job, extra={**job.extra, **centred(centre)})

    def objective(self) -> Objective:
        """Return the loss with α/2 ||v - (w - e_k)||²."""
        loss, alpha = objective_of(self.training), self.settings.alpha
        return Proximal(loss, alpha, has_centre=True) if alpha > 0 else loss

    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        """Send the update, and add it to the drift if it is merged."""
        assert isinstance(result, Trained)
        answer = super().answer(task, device, result)
        if self.settings.alpha == 0:
            return answer
        delta = trained(answer.groups["delta"].arrays)
        drift = own_drift(task, device)
        after = {name: part + delta[name] for name, part in drift.items()}
        return replace(answer, if_accepted={DRIFT: after})


def own_drift(task: DeviceTask, device: DeviceView) -> Tensors:
    """Return e_k."""
    return dict(device.private.get(DRIFT) or zeros(task.groups["weights"]))

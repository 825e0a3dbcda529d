"""SCAFFOLD: control variates on the server and on every device correct the drift of local steps.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: SCAFFOLD: Stochastic Controlled Averaging for
Federated Learning, ICML 2020, arXiv 1910.06378, algorithm 1 with option II. In a round with the
devices S of N, from the weights x and the server's control variate c:

    y_i <- y_i - η (g_i(y_i) - c_i + c)       device i, K steps from y_i = x
    c_i+ = c_i - c + (x - y_i) / (K η)        its new control variate
    x <- x + η_g mean_S (y_i - x)
    c <- c + |S| / N mean_S (c_i+ - c_i)

All control variates begin at zero. A device takes c_i+ for its own only if its answer was merged,
so that c stays the mean of all c_i. With momentum or a schedule, K η is the length of the local
steps in a constant gradient (``steps_length``), so that c_i+ stays a mean of gradients.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from edgefed.algorithms.averaging.fedavg import (
    MAX_DELTA,
    AveragingSettings,
    FedAvg,
    difference,
    trained,
)
from edgefed.algorithms.averaging.local_steps import check_steps_length, steps_length
from edgefed.algorithms.averaging.training import schedule_of
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.base import AlgorithmSettings, State
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView, Result, Work
from edgefed.algorithms.interface.exchange import Exchange, Finished, Payload, ReplyRole
from edgefed.algorithms.interface.member import Roster
from edgefed.config.recipes.recipe import ModelSection
from edgefed.events.base.method_tables import Column, MethodTable, method_table
from edgefed.learn.aggregation.exact_mean import ExactMean
from edgefed.learn.base.types import Job, Objective, Tensors, Trained
from edgefed.learn.objectives.linear_term import Linear, shifts
from edgefed.wire.tensors import specs_of

CONTROL = "control"
"""Group of the state, payload and role: c; in an answer c_i+ - c_i; on a device c_i."""

CLIENTS = "clients"
"""In the state's params: N."""


class ScaffoldSettings(AveragingSettings):
    """Those of averaging, uniform as in the paper, and the number of devices."""

    weighting: Literal["examples", "uniform"] = "uniform"
    """Weigh each device by its number of samples, or all devices equally, as the paper does."""

    clients: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """N: number of devices over all rounds; 0 for those that are there when the run starts."""


class Scaffold(FedAvg):
    """Stochastic controlled averaging."""

    name = "scaffold"
    summary = "FedAvg whose local steps are corrected by control variates"
    paper = "Karimireddy et al., ICML 2020, arXiv 1910.06378"
    late_problem = "its control variates are those of one round"
    takes_user_loss = True
    keeps_if_accepted = True
    Settings: ClassVar[type[AlgorithmSettings]] = ScaffoldSettings
    settings: ScaffoldSettings

    def check_recipe(self, section: ModelSection | None) -> None:
        """Check that the length of the local steps is known.

        Raises:
            RecipeError: ``algorithm.optimizer``.
        """
        del section
        check_steps_length(self.name, self.training, self.settings.mu)

    # -- the coordinator -------------------------------------------------------------------------

    def start(self, weights: Tensors, roster: Roster, seed: int) -> State:
        """Begin with a control variate of zeros."""
        state = super().start(weights, roster, seed)
        clients = self.settings.clients or max(1, len(roster))
        groups = {**state.groups, CONTROL: zeros(weights)}
        return replace(state, groups=groups, params={**state.params, CLIENTS: clients})

    def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
        """Send x and c to a cohort."""
        planned = super().plan(state, roster, seed)
        if isinstance(planned, Finished):
            return planned
        control = state.groups[CONTROL]
        questions = (
            replace(question, blobs={**question.blobs, CONTROL: CONTROL})
            for question in planned.questions
        )
        role = ReplyRole(specs_of(control), MAX_DELTA, trained=True)
        return replace(
            planned,
            questions=tuple(questions),
            payloads={**planned.payloads, CONTROL: Payload(control)},
            reply_roles={**planned.reply_roles, CONTROL: role},
        )

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        """Step along the mean update, and add the devices' share of changes to c."""
        control = state.groups[CONTROL]
        changes = ExactMean(control, max(1, len(exchange.questions)))
        merged = super().merge(state, exchange, with_changes(answers, changes))
        if changes.weight == 0:
            return merged
        share, mean = np.float32(changes.weight / state.params[CLIENTS]), changes.mean()
        # c <- c + |S| / N mean_S (c_i+ - c_i)
        after = {name: array + share * mean[name] for name, array in control.items()}
        return replace(merged, groups={**merged.groups, CONTROL: after})

    def view(self, state: State) -> tuple[MethodTable, ...]:
        """Show the norm of c for each array of the model, and of all of them by round."""
        norms = {
            name: float(np.linalg.norm(array)) for name, array in state.groups[CONTROL].items()
        }
        total = float(np.linalg.norm(list(norms.values())))
        column = Column(name="norm", format=".4g", show="bar")
        table = method_table(
            "control norms",
            [column],
            [(name, [norm]) for name, norm in norms.items()],
            key="array",
            series={"all arrays": total},
            verdict=f"the control variate has the norm {total:.4g}",
        )
        return (table,)

    # -- a device --------------------------------------------------------------------------------

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        """Train with c - c_i added to every gradient."""
        job = super().prepare(task, device)
        assert isinstance(job, Job)
        shift = difference(task.groups[CONTROL], own_control(task, device))
        return replace(job, extra={**job.extra, **shifts(shift)})

    def objective(self) -> Objective:
        """Return FedAvg's objective with the linear term of the control variates."""
        return Linear(super().objective())

    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        """Send y_i - x and c_i+ - c_i, and keep c_i+ if they are merged."""
        assert isinstance(result, Trained)
        answer = super().answer(task, device, result)
        schedule = schedule_of(self.training, task.round, task.rounds)
        # K η; with momentum or a schedule, the length of the steps takes its place
        length = steps_length(schedule, self.settings.mu, result.steps) * schedule.learning_rate
        delta = answer.groups["delta"].arrays
        # c_i+ - c_i = -c + (x - y_i) / (K η), where delta is y_i - x
        change = {
            name: -(control + delta[name] / np.float32(length))
            for name, control in task.groups[CONTROL].items()
        }
        own = own_control(task, device)
        return replace(
            answer,
            groups={**answer.groups, CONTROL: Group(change)},
            if_accepted={CONTROL: {name: own[name] + part for name, part in change.items()}},
        )


def with_changes(answers: Iterable[Answer], changes: ExactMean) -> Iterable[Answer]:
    """Yield the answers, and add the change of each device's control variate to a mean."""
    for answer in answers:
        changes.add(answer.groups[CONTROL].arrays, 1)
        yield answer


def own_control(task: DeviceTask, device: DeviceView) -> Tensors:
    """Return c_i."""
    return dict(device.private.get(CONTROL) or zeros(task.groups["weights"]))


def zeros(weights: Tensors) -> Tensors:
    """Return a control variate of zeros: one for every weight that is trained."""
    return {name: np.zeros_like(array) for name, array in trained(weights).items()}

"""SCAFFOLD: control variates on the server and on every device correct the drift of local steps.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: SCAFFOLD: Stochastic Controlled Averaging for
Federated Learning, ICML 2020, arXiv 1910.06378, algorithm 1 with option II. In a round with the
devices S of N, from the weights x and the server's control variate c:

    y_i <- y_i - η (g_i(y_i) - c_i + c)       device i, K steps from y_i = x
    c_i+ = c_i - c + (x - y_i) / (K η)        its new control variate
    x <- x + η_g mean_S (y_i - x)
    c <- c + |S| / N mean_S (c_i+ - c_i)

All control variates begin at zero. A device keeps c_i as private state of the run. It takes c_i+
for its own only if the coordinator has merged its answer, so that c stays the mean of all c_i when
an answer comes too late.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

import numpy as np

from edgefed.extension import (
    MAX_DELTA,
    Algorithm,
    AlgorithmSettings,
    Answer,
    Column,
    DeviceTask,
    DeviceView,
    ExactMean,
    Exchange,
    Finished,
    Group,
    Job,
    MethodTable,
    Model,
    Payload,
    Question,
    RecipeNeeds,
    ReplyRole,
    Result,
    Roster,
    ServerOptimizer,
    State,
    Tensors,
    Trained,
    Work,
    augment_of,
    delta_role,
    difference,
    draw_cohort,
    loss_of,
    method_table,
    schedule_of,
    specs_of,
    trained_arrays,
)
from example_scaffold.corrected import Corrected
from example_scaffold.settings import ScaffoldSettings, check_training

CONTROL = "control"
"""Group of the state, payload and role: c; in an answer c_i+ - c_i; on a device c_i."""

CLIENTS = "clients"
"""In the state's params: N."""


class Scaffold(Algorithm[ScaffoldSettings], RecipeNeeds):
    """Stochastic controlled averaging."""

    name = "example_scaffold"
    summary = "Correct local steps by control variates of server and devices"
    paper = "Karimireddy et al., ICML 2020, arXiv 1910.06378"
    keeps_if_accepted = True
    Settings: ClassVar[type[AlgorithmSettings]] = ScaffoldSettings

    def check_model(self, model: Model) -> None:
        """Check the recipe's training, which no model makes wrong."""
        del model
        check_training(self.training)

    def can_carry_state(self) -> bool:
        """Return whether each step calls the model once, on the batch's own inputs."""
        return True

    # -- the coordinator -------------------------------------------------------------------------

    def start(self, weights: Tensors, roster: Roster, seed: int) -> State:
        """Begin with a control variate of zeros."""
        del seed
        clients = self.settings.clients or max(1, len(roster))
        groups = {"weights": weights, CONTROL: zeros(weights)}
        return State(round=0, groups=groups, params={CLIENTS: clients})

    def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
        """Send a cohort x and c."""
        if state.round >= self.rounds.count:
            return Finished()
        cohort = draw_cohort(roster, self.rounds, seed)
        roles = {"weights": "weights", CONTROL: CONTROL}
        weights, control = state.groups["weights"], state.groups[CONTROL]
        return Exchange(
            name="fit",
            round=state.round + 1,
            questions=tuple(Question(each.device, each.samples, roles) for each in cohort.members),
            payloads={"weights": Payload(weights), CONTROL: Payload(control)},
            wanted=cohort.wanted,
            quorum=cohort.quorum,
            deadline=self.rounds.deadline,
            reply_roles={
                "delta": delta_role(weights),
                CONTROL: ReplyRole(specs_of(control), MAX_DELTA, trained=True),
            },
        )

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        """Step along the mean update, and add the devices' share of changes to c."""
        weights, control = state.groups["weights"], state.groups[CONTROL]
        most = max(1, len(exchange.questions))
        updates, changes = ExactMean(weights, most), ExactMean(control, most)
        count = 0
        for answer in answers:
            updates.add(answer.groups["delta"].arrays, 1)
            changes.add(answer.groups[CONTROL].arrays, 1)
            count += 1
        if not count:
            return replace(state, round=exchange.round)
        share = np.float32(count / state.params[CLIENTS])
        mean = changes.mean()
        after = {name: array + share * mean[name] for name, array in control.items()}
        groups = {"weights": self.stepped(weights, updates.mean()), CONTROL: after}
        return State(exchange.round, groups, state.params)

    def stepped(self, weights: Tensors, mean: Tensors) -> Tensors:
        """Return x + η_g mean; running statistics are averaged."""
        optimizer = ServerOptimizer("sgd", self.settings.server_learning_rate)
        averaged = [name for name in weights if name not in trained_arrays(weights)]
        return optimizer.step(weights, mean, {}, 1, averaged)[0]

    def view(self, state: State) -> tuple[MethodTable, ...]:
        """Show the norm of c for each array of the model, and of all of them by round."""
        norms = {name: float(np.linalg.norm(each)) for name, each in state.groups[CONTROL].items()}
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
        own = own_control(task, device)
        return Job(
            weights=task.groups["weights"],
            objective=Corrected(loss_of(self.training)),
            schedule=schedule_of(self.training, task.round, task.rounds),
            seed=task.seed,
            extra=difference(task.groups[CONTROL], own),
            augment=augment_of(self.training, self.images),
        )

    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        """Send y_i - x and c_i+ - c_i, and keep c_i+ if they are merged."""
        assert isinstance(result, Trained)
        delta = difference(result.weights, task.groups["weights"])
        rate = schedule_of(self.training, task.round, task.rounds).learning_rate
        change = {
            name: -(control + delta[name] / np.float32(result.steps * rate))
            for name, control in task.groups[CONTROL].items()
        }
        own = own_control(task, device)
        after = {name: array + change[name] for name, array in own.items()}
        return Answer(
            device=task.device,
            samples=result.samples,
            groups={"delta": Group(delta), CONTROL: Group(change)},
            metrics={"loss": result.loss, "steps": float(result.steps)},
            if_accepted={CONTROL: after},
        )


def own_control(task: DeviceTask, device: DeviceView) -> Tensors:
    """Return c_i."""
    return dict(device.private.get(CONTROL) or zeros(task.groups["weights"]))


def zeros(weights: Tensors) -> Tensors:
    """Return a control variate of zeros: one for every weight that is trained."""
    return {name: np.zeros_like(array) for name, array in trained_arrays(weights).items()}

"""An algorithm that leaves everything to another one; a subclass changes some of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from edgefed.algorithms.base import (
    Algorithm,
    Answer,
    DeviceTask,
    DeviceTest,
    DeviceView,
    Exchange,
    Finished,
    Predict,
    Predictor,
    Remark,
    Result,
    Roster,
    State,
    Work,
)
from edgefed.algorithms.exchange_part import ExchangePart
from edgefed.config.recipe import ModelSection
from edgefed.events.method_tables import MethodTable
from edgefed.learn.models import Model
from edgefed.learn.types import Tensors
from edgefed.sharing.bounty_report import BountyOrder


class WrappedAlgorithm(Algorithm[Any]):
    """Every method calls the same one of ``inner``.

    Args:
        inner: the algorithm, with its parts.
    """

    def __init__(self, inner: Algorithm[Any]) -> None:
        super().__init__(inner.settings, inner.training, inner.planned_rounds, inner.images)
        self.name, self.summary, self.paper = inner.name, inner.summary, inner.paper
        self.evaluation_place = inner.evaluation_place
        self.evaluation_weighting = inner.evaluation_weighting
        self.evaluation_modes = inner.evaluation_modes
        self.averages_updates = inner.averages_updates
        self.personal_weights = inner.personal_weights
        self.private_updates = inner.private_updates
        self.sums_deltas = inner.sums_deltas
        self.takes_user_loss = inner.takes_user_loss
        self.inner = inner

    def parts(self) -> tuple[ExchangePart, ...]:
        """Return the parts."""
        return self.inner.parts()

    def needed_columns(self) -> tuple[str, ...]:
        """Return the columns without which it cannot train on a device's samples."""
        return self.inner.needed_columns()

    # -- the coordinator ------------------------------------------------------------------------

    def needs_simulation(self) -> str:
        """Return what it needs that no real fleet gives, or nothing."""
        return self.inner.needs_simulation()

    def check_recipe(self, section: ModelSection | None) -> None:
        """Check what a recipe combines."""
        self.inner.check_recipe(section)

    def check_model(self, model: Model) -> None:
        """Check that a run can train this model."""
        self.inner.check_model(model)

    def can_carry_state(self) -> bool:
        """Return whether ``training.carry_state`` may be set."""
        return self.inner.can_carry_state()

    def start(self, weights: Tensors, roster: Roster, seed: int) -> State:
        """Return the state before the first round."""
        return self.inner.start(weights, roster, seed)

    def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
        """Return what to ask next."""
        return self.inner.plan(state, roster, seed)

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        """Return the state after the answers."""
        return self.inner.merge(state, exchange, answers)

    def begin_anew(self, state: State, exchange: Exchange, causes: Collection[str] = ()) -> State:
        """Return the state in which to plan again after an exchange that was not merged."""
        return self.inner.begin_anew(state, exchange, causes)

    def restored(self, state: State, number: int) -> State:
        """Return a state from a backup as one that devices go on from."""
        return self.inner.restored(state, number)

    def max_reply_bytes(self, exchange: Exchange, model: Model) -> int:
        """Return the bytes that an answer may take."""
        return self.inner.max_reply_bytes(exchange, model)

    def reject_reason(self, exchange: Exchange, answer: Answer, model: Model) -> str:
        """Return why an answer cannot be merged, or nothing."""
        return self.inner.reject_reason(exchange, answer, model)

    def merge_group(self, answer: Answer) -> str:
        """Return which answers this one is averaged with."""
        return self.inner.merge_group(answer)

    def remarks(self, before: State, exchange: Exchange, after: State) -> tuple[Remark, ...]:
        """Return what an operator should know of a merge."""
        return self.inner.remarks(before, exchange, after)

    def view(self, state: State) -> tuple[MethodTable, ...]:
        """Return the inner algorithm's tables; a wrapper that must hide some overrides this."""
        return self.inner.view(state)

    def with_bounty_orders(self, state: State, orders: Sequence[BountyOrder]) -> State:
        """Return the state after an operator's orders."""
        return self.inner.with_bounty_orders(state, orders)

    def weights(self, state: State) -> Tensors:
        """Return the weights of the global model."""
        return self.inner.weights(state)

    def model(self, state: State) -> ModelSection | None:
        """Return the network that the state's weights belong to."""
        return self.inner.model(state)

    def models(self, state: State) -> Mapping[str, Tensors]:
        """Return what is saved as the run's result."""
        return self.inner.models(state)

    def with_models(self, state: State, models: Mapping[str, Tensors]) -> State:
        """Return a state with the models of an earlier round."""
        return self.inner.with_models(state, models)

    def model_shares(self, state: State) -> Mapping[str, float]:
        """Return what each of several models counts in their predictions."""
        return self.inner.model_shares(state)

    def predictor(self, state: State, predict: Predict) -> Predictor:
        """Return how the trained thing predicts."""
        return self.inner.predictor(state, predict)

    def round_metrics(self, state: State) -> Mapping[str, float]:
        """Return what a merge measured beside its result."""
        return self.inner.round_metrics(state)

    def evaluation(self, state: State, roster: Roster, seed: int) -> Exchange:
        """Return the exchange that asks devices to test the state's model."""
        return self.inner.evaluation(state, roster, seed)

    def evaluation_in_mode(self, state: State, asked: Exchange, mode: str) -> Exchange:
        """Return an evaluation's exchange that makes every device test in one of the modes."""
        return self.inner.evaluation_in_mode(state, asked, mode)

    # -- the device -----------------------------------------------------------------------------

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        """Return the work that the task asks for, or at once the answer."""
        return self.inner.prepare(task, device)

    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        """Return the answer that the finished work makes."""
        return self.inner.answer(task, device, result)

    def eval_job(self, task: DeviceTask, device: DeviceView) -> DeviceTest:
        """Return how this device tests the model of an ``evaluate`` task."""
        return self.inner.eval_job(task, device)

"""An algorithm combined with its parts, as the engine and the devices use it.

plan     the exchanges of the parts come first, in order; then training, with the parts' additions;
         after the last round, the final exchanges of parts
merge    is delegated to the owner of the exchange: a part, or else the algorithm
prepare  likewise; each part in turn may change the algorithm's training job
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from edgefed.algorithms.bounties.bounty_exchange import BountyExchange
from edgefed.algorithms.composed.accepted_state import AcceptedState
from edgefed.algorithms.composed.local_work import LocalWork, with_jobs
from edgefed.algorithms.composed.method import Method
from edgefed.algorithms.interface.answer import Answer, Remark
from edgefed.algorithms.interface.base import Algorithm, State
from edgefed.algorithms.interface.device_side import (
    Chosen,
    DeviceTask,
    DeviceView,
    Result,
    Work,
)
from edgefed.algorithms.interface.exchange import Exchange, Finished
from edgefed.algorithms.interface.exchange_part import ExchangePart
from edgefed.algorithms.interface.member import Roster
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.algorithms.interface.wrapped_algorithm import WrappedAlgorithm, complete
from edgefed.algorithms.private.personal_models import PersonalModels
from edgefed.algorithms.private.personal_names import personal_names
from edgefed.algorithms.private.private_updates import (
    CoordinatorRandomness,
    PrivateUpdates,
    from_operating_system,
)
from edgefed.algorithms.secure.secure_aggregation import SecureAggregation
from edgefed.algorithms.secure.secure_compatibility import check_sums, check_without_privacy
from edgefed.config.recipes.recipe import ModelSection
from edgefed.events.base.method_tables import MethodTable
from edgefed.learn.base.types import Job, Tensors, Trained
from edgefed.learn.modeling.model import Model
from edgefed.sharing.bounty_report import BountyOrder


def compose(
    algorithm: Algorithm[Any],
    method: Method,
    randomness: CoordinatorRandomness = from_operating_system,
) -> CompleteAlgorithm[Any]:
    """Return an algorithm with all that its method adds: parts, personal weights, privacy or masks.

    Args:
        algorithm: trains and merges; one without additions is returned as it is.
        method: of its tables, ``labels`` is a part of any algorithm; no part sends the weights that
            ``personal`` keeps on devices; ``privacy`` and ``secure_aggregation`` cover the answers.
        randomness: of the coordinator's privacy noise; only code can pass another one.

    Raises:
        RecipeError: ``privacy.algorithm``: the table does not cover the algorithm; or
            ``secure.unfit``: it does not support masked updates.
    """
    personal, privacy = method.personal, method.privacy
    whole, parts = complete(algorithm), algorithm.parts()
    if algorithm.keeps_if_accepted:
        whole = AcceptedState(whole)
    if method.labels.wanted:
        needed = whole.needed_columns()
        parts = (BountyExchange(method.labels, algorithm.training, needed), *parts)
    if parts:
        whole = Composition(whole, parts)
    if algorithm.training.varies:
        whole = LocalWork(whole)
    if personal.wanted:
        whole = PersonalModels(whole, personal)
    if method.secure_aggregation.wanted:
        check_without_privacy(privacy)
        check_sums(algorithm)
        return SecureAggregation(whole, method.secure_aggregation)
    if not privacy.wanted:
        return whole

    def shared_names(model: Model) -> tuple[str, ...]:
        kept = personal_names(personal, model) if personal.keeps_weights else ()
        return tuple(name for name in model.names if name not in kept)

    return PrivateUpdates(whole, privacy, shared_names, randomness)


class Composition(WrappedAlgorithm):
    """An algorithm whose parts have exchanges of their own.

    Args:
        algorithm: trains and merges.
        parts: in the order in which their exchanges are put.
    """

    def __init__(self, algorithm: CompleteAlgorithm[Any], parts: tuple[ExchangePart, ...]) -> None:
        super().__init__(algorithm)
        self._parts = parts
        self._members: tuple[CompleteAlgorithm[Any] | ExchangePart, ...] = (algorithm, *parts)
        self.merges_late = all(member.merges_late for member in self._members)
        self.takes_user_loss = all(member.takes_user_loss for member in self._members)
        self._owners = {name: part for part in parts for name in part.exchanges}

    def parts(self) -> tuple[ExchangePart, ...]:
        """Return the parts."""
        return self._parts

    # -- the coordinator ------------------------------------------------------------------------

    def needs_simulation(self) -> str:
        """Return the first requirement that only a simulation meets, or nothing."""
        needs = (member.needs_simulation() for member in reversed(self._members))
        return next((need for need in needs if need), "")

    def check_recipe(self, section: ModelSection | None) -> None:
        """Check that the algorithm and every part fit the recipe."""
        for member in self._members:
            member.check_recipe(section)

    def check_model(self, model: Model) -> None:
        """Check that the algorithm and every part can train this model."""
        for member in self._members:
            member.check_model(model)

    def can_carry_state(self) -> bool:
        """Return whether the algorithm and all parts can carry a recurrent state."""
        return all(member.can_carry_state() for member in self._members)

    def start(self, weights: Tensors, roster: Roster, seed: int) -> State:
        """Return the algorithm's first state with the parts' own state."""
        state = self.inner.start(weights, roster, seed)
        for part in self._parts:
            state = part.start(state, seed)
        return state

    def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
        """Plan a part's exchange, or training when no part has one left before it."""
        training = self.inner.plan(state, roster, seed)
        if isinstance(training, Finished):
            last = (part.plan_last(state, roster) for part in self._parts)
            return next((own for own in last if own is not None), training)
        for part in self._parts:
            if (own := part.plan(state, roster, training)) is not None:
                return own
        for part in self._parts:
            training = part.add_to_training(training, state)
        return training

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        """Merge with the owner of the exchange."""
        return self._owner(exchange.name).merge(state, exchange, answers)

    def max_reply_bytes(self, exchange: Exchange, model: Model) -> int:
        """Return the bytes that an answer may take."""
        return self._owner(exchange.name).max_reply_bytes(exchange, model)

    def reject_reason(self, exchange: Exchange, answer: Answer, model: Model) -> str:
        """Return why the exchange's owner cannot merge an answer, or nothing."""
        return self._owner(exchange.name).reject_reason(exchange, answer, model)

    def remarks(self, before: State, exchange: Exchange, after: State) -> tuple[Remark, ...]:
        """Return the remarks of the algorithm and all parts about a merge."""
        by_part = (part.remarks(before, exchange, after) for part in self._members)
        return tuple(remark for remarks in by_part for remark in remarks)

    def view(self, state: State) -> tuple[MethodTable, ...]:
        """Return the tables of the algorithm and of all parts."""
        return tuple(table for part in self._members for table in part.view(state))

    def with_bounty_orders(self, state: State, orders: Sequence[BountyOrder]) -> State:
        """Carry out orders in every part."""
        for part in self._members:
            state = part.with_bounty_orders(state, orders)
        return state

    def _owner(self, exchange: str) -> CompleteAlgorithm[Any] | ExchangePart:
        return self._owners.get(exchange, self.inner)

    # -- the device -----------------------------------------------------------------------------

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        """Prepare with the owner of the exchange; every part may change a training job."""
        work = self._owner(task.question).prepare(task, device)
        if task.question in self._owners:
            return work
        if isinstance(work, Answer):
            return work
        return with_jobs(work, lambda job: self._changed(job, task, device))

    def _changed(self, job: Job, task: DeviceTask, device: DeviceView) -> Job:
        """Return a training job, changed by every part."""
        for part in self._parts:
            job = part.change_job(job, task, device)
        return job

    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        """Answer with the owner of the exchange; every part may change the answer to training."""
        answer = self._owner(task.question).answer(task, device, result)
        if task.question not in self._owners and isinstance(result, (Trained, Chosen, tuple)):
            for part in self._parts:
                answer = part.change_answer(answer, task, device)
        return answer

"""A part of an algorithm: exchanges before training, and their effect on training.

An algorithm defines how devices train and how their answers are merged. Its parts prepare what
training uses, such as averaged data. A part owns exchanges by name, and keeps its state in groups
and parameters of the algorithm's state, under its own names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

from edgefed.algorithms.base import (
    Answer,
    DeviceTask,
    DeviceView,
    Exchange,
    Remark,
    Result,
    Roster,
    State,
    Work,
)
from edgefed.learn.models import Model
from edgefed.learn.types import Job
from edgefed.sharing.label_report import LabelOrder, LabelReport


class ExchangePart(ABC):
    """Both halves of a part.

    Attributes:
        exchanges: names of the exchanges that it owns; no other part of the method has them.
    """

    exchanges: ClassVar[frozenset[str]]

    # -- the coordinator ------------------------------------------------------------------------

    def needs_simulation(self) -> str:
        """Return what it needs that no real fleet gives, or nothing."""
        return ""

    def check_model(self, model: Model) -> None:
        """Check that it works with the run's model.

        Raises:
            RecipeError: it does not; said before any device is asked.
        """
        del model

    @abstractmethod
    def start(self, state: State, seed: int) -> State:
        """Return the algorithm's first state with what the part keeps in it."""

    @abstractmethod
    def plan(self, state: State, roster: Roster, training: Exchange) -> Exchange | None:
        """Return the exchange to put before ``training``, or None when nothing is left to ask."""

    @abstractmethod
    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        """Return the state after the answers to an exchange that the part owns."""

    @abstractmethod
    def add_to_training(self, training: Exchange, state: State) -> Exchange:
        """Return the training exchange with what the part sends along."""

    def max_reply_bytes(self, exchange: Exchange, model: Model) -> int:
        """Return the bytes that an answer to its exchange may take."""
        del exchange, model
        return 0

    def reject_reason(self, exchange: Exchange, answer: Answer, model: Model) -> str:
        """Return why an answer to its exchange cannot be merged, or nothing."""
        del exchange, answer, model
        return ""

    def remarks(self, before: State, exchange: Exchange, after: State) -> tuple[Remark, ...]:
        """Return what an operator should know of the merge of any exchange of the method."""
        del before, exchange, after
        return ()

    def label_report(self, state: State) -> LabelReport:
        """Return what is known of label bounties; empty without any."""
        del state
        return LabelReport()

    def with_label_orders(self, state: State, orders: Sequence[LabelOrder]) -> State:
        """Return the state after an operator's orders; those it has seen before change nothing."""
        del orders
        return state

    # -- the device -----------------------------------------------------------------------------

    @abstractmethod
    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        """Return the work that a task of its exchange asks for, or at once the answer."""

    @abstractmethod
    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        """Return the answer that the finished work makes."""

    @abstractmethod
    def change_job(self, job: Job, task: DeviceTask, device: DeviceView) -> Job:
        """Return the algorithm's training job with what the part adds to it."""

    def change_answer(self, answer: Answer, task: DeviceTask, device: DeviceView) -> Answer:
        """Return the algorithm's answer to its training task with what the part changes in it."""
        del task, device
        return answer

"""A part of an algorithm: exchanges before training or at the end, and their effect on training.

An algorithm defines how devices train and how their answers are merged. Its parts prepare data that
training uses, such as averages. A part owns exchanges by name, and keeps its state in groups and
parameters of the algorithm's state, under its own names.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import ExchangeOwner, State
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.algorithms.interface.member import Roster
from edgefed.algorithms.interface.optional_interfaces import AnswerGroups, BountyOrders, RecipeNeeds
from edgefed.learn.base.types import Job


class ExchangePart(RecipeNeeds, AnswerGroups, BountyOrders, ExchangeOwner):
    """Both halves of a part.

    Attributes:
        exchanges: names of the exchanges that it owns; no other part of the method has them.
        merges_late: whether its additions to training do not depend on which devices are asked
            together, so that rounds may be buffered.
    """

    exchanges: ClassVar[frozenset[str]]
    merges_late: bool = False

    # -- the coordinator ------------------------------------------------------------------------

    @abstractmethod
    def start(self, state: State, seed: int) -> State:
        """Return the algorithm's first state with the part's own state."""

    @abstractmethod
    def plan(self, state: State, roster: Roster, training: Exchange) -> Exchange | None:
        """Return the exchange to put before ``training``, or None when nothing is left to ask."""

    def plan_last(self, state: State, roster: Roster) -> Exchange | None:
        """Return an exchange to put after the last round, or None; its round is the state's."""
        del state, roster
        return None

    @abstractmethod
    def add_to_training(self, training: Exchange, state: State) -> Exchange:
        """Return the training exchange with the part's additions."""

    # -- the device -----------------------------------------------------------------------------

    @abstractmethod
    def change_job(self, job: Job, task: DeviceTask, device: DeviceView) -> Job:
        """Return the algorithm's training job, changed by the part."""

    def change_answer(self, answer: Answer, task: DeviceTask, device: DeviceView) -> Answer:
        """Return the algorithm's answer to its training task, changed by the part."""
        del task, device
        return answer

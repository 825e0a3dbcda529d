"""The interface of an algorithm: a coordinator half and a device half, both pure functions.

The coordinator half is a state machine: ``plan`` returns the next exchange, and ``merge`` folds the
answers into the state. The device half is ``prepare`` and ``answer``, which run before and after
the training; a trainer trains. Neither half uses a socket, a clock, a file or a global generator,
so a run can stop after any exchange, be stored, and resume in another process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from edgefed.algorithms.interface.answer import Answer, Remark
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView, Result, Work
from edgefed.algorithms.interface.exchange import Exchange, Finished
from edgefed.algorithms.interface.member import Roster
from edgefed.config.recipes.images_section import NO_IMAGES, ImagesSection
from edgefed.config.recipes.recipe import RoundsSection
from edgefed.config.recipes.training_section import TrainingSection
from edgefed.events.base.method_tables import MethodTable
from edgefed.learn.base.types import Tensors

if TYPE_CHECKING:
    from edgefed.algorithms.interface.exchange_part import ExchangePart
    from edgefed.learn.modeling.model import Model


class AlgorithmSettings(BaseModel):
    """An algorithm's own keys of the recipe's ``[algorithm]`` table: described, ranged, frozen.

    Command-line help, TOML validation, forms and docs are all made from it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


SettingsT = TypeVar("SettingsT", bound=AlgorithmSettings)


@dataclass(frozen=True)
class State:
    """All that an algorithm carries from one exchange to the next; written to disk after each.

    Attributes:
        round: rounds that are finished.
        groups: named sets of arrays, such as ``weights`` or an optimiser's memory.
        params: JSON values.
    """

    round: int
    groups: Mapping[str, Tensors]
    params: Mapping[str, Any] = field(default_factory=dict)


TRAINING_METHODS = ("merge", "answer")
"""Methods on which every capability rests."""

SUMMING_METHODS = (*TRAINING_METHODS, "contribution")
"""Methods on which it rests that updates are merely summed with weights."""

CAPABILITIES: Mapping[str, tuple[str, ...]] = {
    "averages_updates": SUMMING_METHODS,
    "merges_late": SUMMING_METHODS,
    "personal_weights": TRAINING_METHODS,
    "private_updates": SUMMING_METHODS,
    "sums_deltas": SUMMING_METHODS,
    "takes_user_loss": (*TRAINING_METHODS, "prepare", "objective"),
}
"""Capabilities that a class may declare, with the methods that can make them untrue."""


class ExchangeOwner(ABC):
    """Both halves of the exchanges that an algorithm, or a part of it, owns.

    A class has a capability of ``CAPABILITIES`` only if it is declared in the class that defines
    the methods on which it rests, or in a subclass. A class that overrides one of them and does not
    declare the capability again loses it.

    Attributes:
        takes_user_loss: whether devices can train with any loss of outputs and targets: it is
            neither mixed nor weighted, and nothing else depends on its value.
    """

    takes_user_loss: bool = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for capability, methods in CAPABILITIES.items():
            if hasattr(cls, capability) and not _declares(cls, capability, methods):
                setattr(cls, capability, False)

    @abstractmethod
    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        """Return the state after the answers, with the same bits for any order of answers.

        Answers are decoded one at a time as they are taken, so a sum holds one in memory.
        """

    @abstractmethod
    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        """Return the work that the task requires, or the answer at once."""

    @abstractmethod
    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        """Return the answer from the finished work."""

    def check_model(self, model: Model) -> None:
        """Check that a run can train this model.

        Raises:
            RecipeError: it cannot; raised before any device is asked.
        """
        del model

    def reject_reason(self, exchange: Exchange, answer: Answer, model: Model) -> str:
        """Return why an answer cannot be merged, or nothing; the reason is reported and shown."""
        del exchange, answer, model
        return ""

    def remarks(self, before: State, exchange: Exchange, after: State) -> tuple[Remark, ...]:
        """Return messages to the operator about a merge."""
        del before, exchange, after
        return ()

    def view(self, state: State) -> tuple[MethodTable, ...]:
        """Return tables that show the state to people, as after the merge of each exchange.

        A call that raises causes a warning; the run continues.
        """
        del state
        return ()


def _declares(kind: type[object], capability: str, methods: Collection[str]) -> bool:
    """Return whether a class, or one that it inherits the methods from, states a capability."""
    for base in kind.__mro__:
        if capability in vars(base):
            return True
        if not vars(base).keys().isdisjoint(methods):
            return False
    return True


class Algorithm(ExchangeOwner, Generic[SettingsT]):
    """Both halves of one federated algorithm.

    Optional interfaces are in ``optional_interfaces``: other models than the recipe's one
    (``SavedModels``), tests on devices (``DeviceTests``), needs of a recipe (``RecipeNeeds``),
    large answers and groups of them (``AnswerGroups``), failed exchanges (``Recovery``), measures
    of a round (``RoundMetrics``), operators' orders (``BountyOrders``).

    Attributes:
        name: as the recipe names it.
        summary: one line for lists.
        paper: authors, title, where.
        merges_late: whether its answers to ``fit`` may be merged rounds after their questions
            (``rounds.mode = "buffered"``): ``merge`` needs nothing of the question's round, and
            scales each update by the ``staleness_factor`` of its question.
        late_problem: why they may not, as a clause for an error.
        averages_updates: whether ``merge`` takes weighted means of the trained roles of its
            answers, so that a rule of ``[merging]`` can take the place of the mean.
        personal_weights: whether a recipe's ``[personal]`` table can keep some of its weights on
            devices: its tasks bring one model as ``weights``, and its answers hold a ``delta``.
        private_updates: whether a recipe's ``[privacy]`` table can cover it: an answer's only
            result of the training is one ``delta``, and ``merge`` only averages it.
        sums_deltas: whether it only sums the ``delta`` of the answers to ``fit``, weighted, with
            ``ExactMean``, so that their sum is enough (``[secure_aggregation]``).

        keeps_if_accepted: whether its answers have state that a device keeps only if they are
            merged (``Answer.if_accepted``).
        keeps_lost_work: whether the private state of a device may come from an answer that was
            never merged, such as weights of its own that it trained.

    Args:
        settings: its own keys of the recipe.
        training: the recipe's ``[training]`` table, as the task carries it on a device.
        planned_rounds: the recipe's ``[rounds]`` table; None on a device.
        images: its ``[images]`` table, as the task carries it on a device.
    """

    name: str
    summary: str
    paper: str
    averages_updates: bool = False
    personal_weights: bool = False
    private_updates: bool = False
    sums_deltas: bool = False
    merges_late: bool = False
    late_problem: str = "it merges the answers to one question"
    keeps_if_accepted: bool = False
    keeps_lost_work: bool = False
    Settings: ClassVar[type[AlgorithmSettings]]

    def __init__(
        self,
        settings: SettingsT,
        training: TrainingSection,
        planned_rounds: RoundsSection | None = None,
        images: ImagesSection = NO_IMAGES,
    ) -> None:
        self.settings = settings
        self.training = training
        self.images = images
        self.planned_rounds = planned_rounds

    @property
    def rounds(self) -> RoundsSection:
        """The recipe's rounds, which the coordinator's half alone has."""
        if self.planned_rounds is None:
            raise RuntimeError(f"The device half of {self.name} has no rounds.")
        return self.planned_rounds

    def parts(self) -> tuple[ExchangePart, ...]:
        """Return the parts that the method is composed of, beside training; see ``composition``."""
        return ()

    @abstractmethod
    def start(self, weights: Tensors, roster: Roster, seed: int) -> State:
        """Return the state before the first round."""

    @abstractmethod
    def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
        """Return the next exchange; ``seed`` is this exchange's own."""

    def weights(self, state: State) -> Tensors:
        """Return the weights of the global model."""
        return state.groups["weights"]

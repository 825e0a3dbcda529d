"""The interface of an algorithm: a coordinator half and a device half, both pure functions.

The coordinator half is a state machine: ``plan`` returns the next exchange, and ``merge`` folds the
answers into the state. The device half is ``prepare`` and ``answer``, which run before and after
the training; a trainer trains. Neither half uses a socket, a clock, a file or a global generator,
so a run can stop after any exchange, be stored, and resume in another process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from edgefed.algorithms.answer import Answer as Answer  # noqa: PLC0414 - of the interface
from edgefed.algorithms.answer import Group as Group  # noqa: PLC0414
from edgefed.algorithms.answer import Remark as Remark  # noqa: PLC0414
from edgefed.algorithms.cohort_sampling import draw_testers
from edgefed.algorithms.device_side import Chosen as Chosen  # noqa: PLC0414 - of the interface
from edgefed.algorithms.device_side import DensityFit as DensityFit  # noqa: PLC0414 - of the interface
from edgefed.algorithms.device_side import DeviceTask as DeviceTask  # noqa: PLC0414
from edgefed.algorithms.device_side import DeviceTest as DeviceTest  # noqa: PLC0414
from edgefed.algorithms.device_side import DeviceView as DeviceView  # noqa: PLC0414
from edgefed.algorithms.device_side import Encoding as Encoding  # noqa: PLC0414
from edgefed.algorithms.device_side import EvalJob as EvalJob  # noqa: PLC0414
from edgefed.algorithms.device_side import LedgerEntry as LedgerEntry  # noqa: PLC0414
from edgefed.algorithms.device_side import LowestLossJob as LowestLossJob  # noqa: PLC0414
from edgefed.algorithms.device_side import PredictorEvalJob as PredictorEvalJob  # noqa: PLC0414
from edgefed.algorithms.device_side import Result as Result  # noqa: PLC0414
from edgefed.algorithms.device_side import StatisticsJob as StatisticsJob  # noqa: PLC0414
from edgefed.algorithms.device_side import TrainedEvalJob as TrainedEvalJob  # noqa: PLC0414
from edgefed.algorithms.device_side import Work as Work  # noqa: PLC0414
from edgefed.algorithms.exchange import Exchange as Exchange  # noqa: PLC0414 - of the interface
from edgefed.algorithms.exchange import Finished as Finished  # noqa: PLC0414
from edgefed.algorithms.exchange import Payload as Payload  # noqa: PLC0414
from edgefed.algorithms.exchange import Question as Question  # noqa: PLC0414
from edgefed.algorithms.exchange import Relay as Relay  # noqa: PLC0414
from edgefed.algorithms.exchange import ReplyRole as ReplyRole  # noqa: PLC0414
from edgefed.algorithms.member import Member as Member  # noqa: PLC0414 - of the interface
from edgefed.algorithms.member import Roster as Roster  # noqa: PLC0414
from edgefed.config.images_section import NO_IMAGES, ImagesSection
from edgefed.config.recipe import EvaluationPlace, EvaluationWeighting, ModelSection, RoundsSection
from edgefed.config.training_section import TrainingSection
from edgefed.errors import UsageError
from edgefed.events.method_tables import MethodTable
from edgefed.learn.models import Model
from edgefed.learn.scoring import Predict as Predict  # noqa: PLC0414 - part of the interface
from edgefed.learn.scoring import Predictor as Predictor  # noqa: PLC0414
from edgefed.learn.types import Tensors
from edgefed.sharing.bounty_report import BountyOrder

if TYPE_CHECKING:
    from edgefed.algorithms.exchange_part import ExchangePart


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

CAPABILITIES: Mapping[str, tuple[str, ...]] = {
    "averages_updates": TRAINING_METHODS,
    "personal_weights": TRAINING_METHODS,
    "private_updates": TRAINING_METHODS,
    "sums_deltas": TRAINING_METHODS,
    "takes_user_loss": (*TRAINING_METHODS, "prepare", "objective"),
}
"""What a class may declare of itself, with the methods that can make it untrue."""


class ExchangeOwner(ABC):
    """Both halves of the exchanges that an algorithm, or a part of it, owns.

    A capability of ``CAPABILITIES`` is true of a class only if it is declared in the class that
    defines the methods on which it rests, or in a subclass. A class that overrides one of them and
    does not declare the capability again is without it.

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
        """Return the state after the answers, in whatever order they come; the same bits for any.

        Answers are decoded one at a time as they are taken, so a sum holds one in memory.
        """

    @abstractmethod
    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        """Return the work that the task asks for, or at once the answer."""

    @abstractmethod
    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        """Return the answer that the finished work makes."""

    def needs_simulation(self) -> str:
        """Return what it needs that no real fleet gives, or nothing."""
        return ""

    def check_recipe(self, section: ModelSection | None) -> None:
        """Check what a recipe combines, as far as neither data nor a model are needed for it.

        Args:
            section: the recipe's ``[model]`` table; None for a model that no recipe describes.

        Raises:
            RecipeError: the tables do not go together; ``check_model`` says so, too.
        """
        del section

    def check_model(self, model: Model) -> None:
        """Check that a run can train this model.

        Raises:
            RecipeError: it cannot; said before any device is asked.
        """
        del model

    def can_carry_state(self) -> bool:
        """Return whether ``training.carry_state`` may be set; see ``capabilities.is_single_pass``.

        It may where every training step calls the model once, on the batch's own inputs.
        """
        return False

    def max_reply_bytes(self, exchange: Exchange, model: Model) -> int:
        """Return the bytes that an answer may take, where that can be more than two models."""
        del exchange, model
        return 0

    def reject_reason(self, exchange: Exchange, answer: Answer, model: Model) -> str:
        """Return why an answer cannot be merged, or nothing; it is then told and shown."""
        del exchange, answer, model
        return ""

    def merge_group(self, answer: Answer) -> str:
        """Return which answers this one is averaged with, by a name that they share.

        Every trained role is averaged over the answers of one group that hold it.
        """
        del answer
        return ""

    def remarks(self, before: State, exchange: Exchange, after: State) -> tuple[Remark, ...]:
        """Return what an operator should know of a merge."""
        del before, exchange, after
        return ()

    def view(self, state: State) -> tuple[MethodTable, ...]:
        """Return tables that show the state to people, as after the merge of each exchange.

        A call that raises costs a warning; the run goes on.
        """
        del state
        return ()

    def with_bounty_orders(self, state: State, orders: Sequence[BountyOrder]) -> State:
        """Return the state after an operator's orders; those it has seen before change nothing."""
        del orders
        return state


def _declares(kind: type[object], capability: str, methods: Collection[str]) -> bool:
    """Return whether a class, or one that it inherits the methods from, states a capability."""
    for each in kind.__mro__:
        if capability in vars(each):
            return True
        if not vars(each).keys().isdisjoint(methods):
            return False
    return True


class Algorithm(ExchangeOwner, Generic[SettingsT]):
    """Both halves of one federated algorithm.

    Attributes:
        name: as the recipe names it.
        summary: one line for lists.
        paper: authors, title, where.
        simulation_only: whether it needs what no real fleet can give, whatever its settings.
        evaluation_place: where the result is tested, unless the recipe says it.
        evaluation_weighting: what the mean of the devices' tests weighs, unless the recipe says it.
        averages_updates: whether ``merge`` takes weighted means of the trained roles of its
            answers, so that a rule of ``[merging]`` can take the place of the mean.
        personal_weights: whether a recipe's ``[personal]`` table can keep some of its weights on
            devices: its tasks bring one model as ``weights``, and its answers hold a ``delta``.
        private_updates: whether a recipe's ``[privacy]`` table can cover it: an answer tells of the
            training with one ``delta``, which is averaged and nothing else.
        evaluation_modes: the words of ``EvalJob.mode`` that an operator may ask all devices for.
        sums_deltas: whether all it does with the answers to ``fit`` is to add up their ``delta``,
            weighted, with ``ExactMean``, so that their sum is enough (``[secure_aggregation]``).

    Args:
        settings: its own keys of the recipe.
        training: the recipe's ``[training]`` table, as the task carries it on a device.
        planned_rounds: the recipe's ``[rounds]`` table; None on a device.
        images: its ``[images]`` table, as the task carries it on a device.
    """

    name: str
    summary: str
    paper: str
    simulation_only: ClassVar[bool] = False
    evaluation_place: EvaluationPlace = "coordinator"
    evaluation_weighting: EvaluationWeighting = "samples"
    averages_updates: bool = False
    personal_weights: bool = False
    private_updates: bool = False
    evaluation_modes: tuple[str, ...] = ()
    sums_deltas: bool = False
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

    def needed_columns(self) -> tuple[str, ...]:
        """Return the columns without which it cannot train on a device's samples."""
        return ()

    def parts(self) -> tuple[ExchangePart, ...]:
        """Return the parts that the method is composed of, beside training; see ``composition``."""
        return ()

    @abstractmethod
    def start(self, weights: Tensors, roster: Roster, seed: int) -> State:
        """Return the state before the first round."""

    @abstractmethod
    def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
        """Return what to ask next; ``seed`` is this exchange's own."""

    def begin_anew(self, state: State, exchange: Exchange, causes: Collection[str] = ()) -> State:
        """Return the state in which to plan again after an exchange that was not merged.

        Its quorum was missed, or ``merge`` raised ``UnmergeableError``. Most algorithms ask the
        same question again, from the same state.

        Args:
            state: that the exchange was planned from.
            exchange: as ``merge`` sees it.
            causes: devices whose answers made the merge fail.
        """
        del exchange, causes
        return state

    def restored(self, state: State, number: int) -> State:
        """Return a state from a backup as one that devices go on from, though they are ahead of it.

        Args:
            state: as it was committed.
            number: larger than every number that devices have been sent in this run.
        """
        del number
        return state

    def needs_simulation(self) -> str:
        """Return what it needs, with its settings, that no real fleet gives; or nothing."""
        return "raw data of all devices" if self.simulation_only else ""

    def weights(self, state: State) -> Tensors:
        """Return the weights of the global model."""
        return state.groups["weights"]

    def model(self, state: State) -> ModelSection | None:
        """Return the network that the state's weights belong to; None for the recipe's own."""
        del state
        return None

    def models(self, state: State) -> Mapping[str, Tensors]:
        """Return what is saved as the run's result: weights of ``model``'s network, by name."""
        return {"model": self.weights(state)}

    def with_models(self, state: State, models: Mapping[str, Tensors]) -> State:
        """Return a state with the models of an earlier round, as ``models`` returned them.

        Raises:
            UsageError: ``evaluate.best``: a prediction takes more than one model, or it has another
                shape by now.
        """
        now, before = self.models(state), models.get("model", {})
        same = all(
            name in before and before[name].shape == array.shape
            for name, array in state.groups.get("weights", {}).items()
        )
        if set(now) != {"model"} or set(models) != {"model"} or not same:
            raise UsageError(
                f"An earlier model of {self.name} cannot be evaluated by itself.",
                code="evaluate.best",
                hint="leave --best out",
            )
        weights = {name: before[name] for name in state.groups["weights"]}
        return replace(state, groups={**state.groups, "weights": weights})

    def model_shares(self, state: State) -> Mapping[str, float]:
        """Return what each of several ``models`` counts in the mean that ``predictor`` returns.

        Empty where there is one model, or where ``predictor`` is not a mean of predictions.
        """
        del state
        return {}

    def predictor(self, state: State, predict: Predict) -> Predictor:
        """Return how the trained thing predicts, given how a single model does."""
        weights = self.weights(state)
        return lambda inputs: predict(weights, inputs)

    def round_metrics(self, state: State) -> Mapping[str, float]:
        """Return what a merge measured beside its result, by name, for the row of its round."""
        del state
        return {}

    def evaluation(self, state: State, roster: Roster, seed: int) -> Exchange:
        """Return the exchange that asks devices to test the state's model.

        Its name is ``evaluate``, its round the state's, and its answers hold metrics only.
        """
        cohort = draw_testers(roster, self.rounds, seed)
        return Exchange(
            name="evaluate",
            round=state.round,
            questions=tuple(
                Question(member.device, member.samples, {"weights": "weights"})
                for member in cohort.members
            ),
            payloads={"weights": Payload(self.weights(state))},
            wanted=cohort.wanted,
            quorum=1,
            deadline=self.rounds.deadline,
        )

    def evaluation_in_mode(self, state: State, asked: Exchange, mode: str) -> Exchange:
        """Return an evaluation's exchange that makes every device test in one of the modes."""
        del state
        with_mode = (
            replace(each, params={**each.params, "mode": mode}) for each in asked.questions
        )
        return replace(asked, questions=tuple(with_mode))

    def eval_job(self, task: DeviceTask, device: DeviceView) -> DeviceTest:
        """Return how this device tests the model of an ``evaluate`` task."""
        return EvalJob(task.groups["weights"], device.test, self.training.loss)

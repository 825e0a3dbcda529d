"""Optional interfaces of an algorithm, beside the methods of ``Algorithm``.

A class has an interface if it inherits it. Where a run calls a method of an interface that its
algorithm lacks, the default here applies (``wrapped_algorithm.complete``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import Algorithm, SettingsT, State
from edgefed.algorithms.interface.cohort_sampling import draw_testers
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceTest, DeviceView, EvalJob
from edgefed.algorithms.interface.exchange import Exchange, Payload, Question
from edgefed.algorithms.interface.member import Roster
from edgefed.config.recipes.recipe import EvaluationPlace, EvaluationWeighting, ModelSection
from edgefed.errors import UsageError
from edgefed.learn.base.types import Tensors
from edgefed.sharing.bounty_report import BountyOrder

if TYPE_CHECKING:
    from edgefed.learn.modeling.model import Model
    from edgefed.learn.training.scoring import Predict, Predictor


class RecipeNeeds:
    """Needs of a recipe, of samples, and of the fleet; parts may have them as well.

    Attributes:
        simulation_only: whether no real fleet can run it, whatever its settings.
    """

    simulation_only: ClassVar[bool] = False

    def needs_simulation(self) -> str:
        """Return the requirement of its settings that only a simulation meets, or nothing."""
        return "raw data of all devices" if self.simulation_only else ""

    def needed_columns(self) -> tuple[str, ...]:
        """Return the columns without which it cannot train on a device's samples."""
        return ()

    def check_recipe(self, section: ModelSection | None) -> None:
        """Check a recipe's combination of settings, as far as possible without data and model.

        Args:
            section: the recipe's ``[model]`` table; None for a model that no recipe describes.

        Raises:
            RecipeError: the tables do not fit together; ``check_model`` raises it, too.
        """
        del section

    def can_carry_state(self) -> bool:
        """Return whether ``training.carry_state`` may be set; see ``capabilities.is_single_pass``.

        It may where every training step calls the model once, on the batch's own inputs.
        """
        return False


class AnswerGroups:
    """Answers that are larger than usual, or averaged in groups; parts may have it as well."""

    def max_reply_bytes(self, exchange: Exchange, model: Model) -> int:
        """Return the most bytes of an answer, where it can be larger than two models."""
        del exchange, model
        return 0

    def merge_group(self, answer: Answer) -> str:
        """Return the name of the group of answers that are averaged with this one.

        Every trained role is averaged over the answers of one group that hold it.
        """
        del answer
        return ""


class BountyOrders:
    """Orders of operators about label bounties; parts may have it as well."""

    def with_bounty_orders(self, state: State, orders: Sequence[BountyOrder]) -> State:
        """Return the state after an operator's orders; repeated orders change nothing."""
        del orders
        return state


class Recovery:
    """How it goes on after an exchange that failed, or from a backup."""

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
        """Return a state from a backup, adapted to devices that are ahead of it.

        Args:
            state: as it was committed.
            number: larger than every number sent to devices in this run.
        """
        del number
        return state


class RoundMetrics:
    """Measurements of a merge."""

    def round_metrics(self, state: State) -> Mapping[str, float]:
        """Return further measurements of a merge, by name, for the row of its round."""
        del state
        return {}


class SavedModels(Algorithm[SettingsT]):
    """Which models a state holds, and how they predict; by default the recipe's, alone."""

    def model(self, state: State) -> ModelSection | None:
        """Return the network that the state's weights belong to; None for the recipe's own."""
        del state
        return None

    def models(self, state: State) -> Mapping[str, Tensors]:
        """Return the run's saved models: weights of ``model``'s network, by name."""
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
        """Return the weight of each of several ``models`` in the mean that ``predictor`` returns.

        Empty where there is one model, or where ``predictor`` is not a mean of predictions.
        """
        del state
        return {}

    def predictor(self, state: State, predict: Predict) -> Predictor:
        """Return how the trained state predicts, given how a single model does."""
        weights = self.weights(state)
        return lambda inputs: predict(weights, inputs)


class DeviceTests(Algorithm[SettingsT]):
    """How devices test the result; by default a cohort tests the weights.

    Attributes:
        evaluation_place: where the result is tested, unless the recipe says it.
        evaluation_weighting: what the mean of the devices' tests weighs, unless the recipe says it.
        evaluation_modes: the words of ``EvalJob.mode`` that an operator may ask all devices for.
    """

    evaluation_place: EvaluationPlace = "coordinator"
    evaluation_weighting: EvaluationWeighting = "samples"
    evaluation_modes: tuple[str, ...] = ()

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
            replace(question, params={**question.params, "mode": mode})
            for question in asked.questions
        )
        return replace(asked, questions=tuple(with_mode))

    def eval_job(self, task: DeviceTask, device: DeviceView) -> DeviceTest:
        """Return how this device tests the model of an ``evaluate`` task."""
        return EvalJob(task.groups["weights"], device.test, self.training.loss)


class CompleteAlgorithm(
    SavedModels[SettingsT],
    DeviceTests[SettingsT],
    RecipeNeeds,
    AnswerGroups,
    BountyOrders,
    Recovery,
    RoundMetrics,
):
    """An algorithm with every optional interface, as a run uses it."""

    def check_model(self, model: Model) -> None:
        """Check that the recipe of this model can be run."""
        self.check_recipe(model.section)

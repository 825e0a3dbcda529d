"""FedNova: updates are averaged for each local step, so that many steps do not count twice.

Wang, Liu, Liang, Joshi, Poor: Tackling the Objective Inconsistency Problem in Heterogeneous
Federated Optimization, NeurIPS 2020, equation 8. With a_k the length of device k's local steps, and
p_k its share of the samples of those that answered:

    d_k = (w_t^k - w_t) / a_k               the update of one step
    a = sum_k p_k a_k                       the effective number of steps
    w_{t+1} = w_t + a sum_k p_k d_k         or a server optimiser's step along this sum

The length is ``||a_k||_1`` of the paper: the number of steps for plain SGD, more with momentum,
less with a proximal term. It does not depend on the gradients, so that the coordinator computes it
from the number of steps. Statistics of batch normalisation are averaged as FedAvg does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from edgefed.algorithms.averaging.fedavg import AveragingSettings, Contribution, FedAvg, trained
from edgefed.algorithms.averaging.local_steps import check_steps_length, steps_length
from edgefed.algorithms.averaging.training import schedule_of, shortened
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import AlgorithmSettings, State
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.config.recipes.recipe import ModelSection
from edgefed.learn.modeling.model import Model
from edgefed.learn.samples.sample_order import planned_steps

EFFECTIVE_STEPS = "tau_eff"
"""Key of a state's ``params`` and of a round's metrics: a, the effective number of steps."""


class FedNova(FedAvg):
    """Normalised averaging of local training with SGD."""

    name = "fednova"
    summary = "FedAvg that weighs every local step alike, however many a device takes"
    paper = "Wang et al., NeurIPS 2020, arXiv 2007.07481"
    late_problem = "its local steps are normalised over one cohort"
    Settings: ClassVar[type[AlgorithmSettings]] = AveragingSettings

    def check_recipe(self, section: ModelSection | None) -> None:
        """Check that the length of the local steps is known without their gradients.

        Raises:
            RecipeError: ``algorithm.optimizer``.
        """
        del section
        check_steps_length(self.name, self.training, self.settings.mu)

    def reject_reason(self, exchange: Exchange, answer: Answer, model: Model) -> str:
        """Return that an answer's steps are not those of its samples: they decide its length."""
        del model
        if "delta" not in answer.groups:  # of a test
            return ""
        question = next(asked for asked in exchange.questions if asked.device == answer.device)
        schedule = schedule_of(self.training, exchange.round, self.rounds.count)
        schedule = shortened(schedule, self.training, question.params, question.seed)
        # With batch normalisation, a single sample that is left over joins the batch before it
        planned = {planned_steps(answer.samples, schedule, pairs=pairs) for pairs in (False, True)}
        steps = answer.metrics.get("steps", 0.0)
        if steps in planned:
            return ""
        return f"it took {steps:g} steps on {answer.samples} samples, not {max(planned)}"

    def contribution(self, answer: Answer, exchange: Exchange) -> Contribution:
        """Return an answer's update for one step, and the length of its steps."""
        schedule = schedule_of(self.training, exchange.round, self.rounds.count)
        length = steps_length(schedule, self.settings.mu, int(answer.metrics["steps"]))
        arrays = answer.groups["delta"].arrays
        # d_k = (w_t^k - w_t) / a_k; statistics are no sums of steps
        normalised = {
            name: (array / length).astype(array.dtype) for name, array in trained(arrays).items()
        }
        return Contribution({**arrays, **normalised}, length)

    def measured(self, length: float) -> Mapping[str, float]:
        """Return the effective number of steps of the round."""
        return {EFFECTIVE_STEPS: length}

    def round_metrics(self, state: State) -> Mapping[str, float]:
        """Return the effective number of steps beside the measurements of FedAvg."""
        steps = state.params.get(EFFECTIVE_STEPS)
        own = {} if steps is None else {EFFECTIVE_STEPS: steps}
        return {**super().round_metrics(state), **own}

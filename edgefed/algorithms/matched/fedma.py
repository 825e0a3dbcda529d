"""FedMA: the layers of the devices' networks are matched one after another, then averaged.

Wang, Yurochkin, Sun, Papailiopoulos, Khazaeni: Federated Learning with Matched Averaging, ICLR
2020, algorithm 1, with communication. A round has an exchange for each of the network's N layers:

    device j     gathers its network from the global one, and trains it      (fedma_device_half)
    for n = 1 .. N - 1:
      device j     sends layer n, with its inputs in the global model's order
      coordinator  matches its units: W_n, and device j's assignment Pi_jn   (fedma_merging)
      device j     freezes W_n, moves the inputs of layer n + 1 by Pi_jn, trains layers n + 1 .. N
    device j     sends layer N
    coordinator  averages it by the classes' proportions p_jc: W_N[c] = sum_j p_jc W_jN[c]

Of a network with batch normalisation, devices then measure the statistics anew. A device that
misses an exchange is left out until the next round; there it begins, as a new device does, with
those units of the global model that most devices have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from edgefed.algorithms.averaging.class_shares import wrong_counts
from edgefed.algorithms.averaging.fedavg import MOST_SAMPLES
from edgefed.algorithms.averaging.training import objective_of
from edgefed.algorithms.interface.answer import Answer, Group, Remark
from edgefed.algorithms.interface.base import AlgorithmSettings, State
from edgefed.algorithms.interface.cohort_sampling import draw, draw_testers
from edgefed.algorithms.interface.device_side import (
    DeviceTask,
    DeviceTest,
    DeviceView,
    EvalJob,
    Result,
    StatisticsJob,
    Work,
)
from edgefed.algorithms.interface.exchange import Exchange, Finished
from edgefed.algorithms.interface.member import Roster
from edgefed.algorithms.interface.optional_interfaces import DeviceTests, RecipeNeeds, SavedModels
from edgefed.algorithms.matched.fedma_device_half import MatchingDeviceHalf, complete_weights
from edgefed.algorithms.matched.fedma_exchanges import Exchanges
from edgefed.algorithms.matched.fedma_merging import after_statistics, after_step
from edgefed.algorithms.matched.fedma_records import (
    ATOMS,
    COUNTS,
    DEVICES,
    GROWTH,
    LAYERS,
    MATCHED,
    NETWORK,
    NEW_ATOMS,
    NEW_COUNTS,
    SEED,
    STATISTICS,
    STEP,
    WEIGHTS,
    MatchedNetwork,
    begins,
    begun_anew,
    widths_of,
)
from edgefed.algorithms.matched.fedma_settings import FedMaSettings
from edgefed.algorithms.matched.growth import bound_remarks, growth_metric
from edgefed.algorithms.matched.matched_layers import LayerMatch, matched_table
from edgefed.config.recipes.recipe import ModelSection
from edgefed.errors import DataError, RecipeError
from edgefed.events.base.method_tables import MethodTable
from edgefed.learn.aggregation.pooled_statistics import MeasuredStatistics, check_statistics
from edgefed.learn.base.types import Tensors, Trained
from edgefed.learn.matching.layer_merging import is_recurrent
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import complete_model
from edgefed.learn.steps.capabilities import is_single_pass
from edgefed.terminal.units import counted


def layers_of(state: State) -> tuple[LayerMatch, ...]:
    """Return every layer that is matched, with the result of its last matching."""
    network = MatchedNetwork.of(state)
    matched = {row["layer"]: LayerMatch(**row) for row in state.params[LAYERS]}
    order = [group for step in network.steps for group in step.decides]
    widths = network.local.widths
    return tuple(matched.get(group, LayerMatch(group, widths[group])) for group in order)


def layer_view(state: State) -> MethodTable:
    """Return the widths that were found, in this round or in the last complete one."""
    under_way = state.params[STEP] > 0
    return matched_table(
        layers_of(state),
        state.round + under_way,
        len(state.groups[NEW_COUNTS]) if under_way else len(state.params[LAYERS]),
        len(state.params[DEVICES]),
        state.params.get(GROWTH),
    )


def match_remarks(
    settings: FedMaSettings, before: State, exchange: Exchange, after: State
) -> tuple[Remark, ...]:
    """Return remarks to the operator about a step."""
    remarks = []
    missed = len(before.params[DEVICES]) - len(after.params[DEVICES])
    if before.params[STEP] and begins(exchange):
        out = "too few of its devices are there, so the round begins again with others"
        remarks.append(Remark(f"round {exchange.round}: {out}", warning=True))
    elif before.params[STEP] and missed > 0:
        out = f"{counted(missed, 'device is', 'devices are')} left out until the next round"
        remarks.append(Remark(f"round {exchange.round}: {out}", warning=True))
    new = layers_of(after) if after.round > before.round else ()
    return (*remarks, *bound_remarks(settings, exchange.round, new, layers_of(before)))


class FedMa(SavedModels[FedMaSettings], DeviceTests[FedMaSettings], RecipeNeeds):
    """Matched averaging, layer by layer."""

    name = "fedma"
    summary = "Match units before they are averaged, layer by layer; the width adapts"
    paper = "Wang et al., ICLR 2020, arXiv 2002.06440"
    late_problem = "its layers are matched for one cohort at a time"
    Settings: ClassVar[type[AlgorithmSettings]] = FedMaSettings
    _network: MatchedNetwork | None = None

    # -- the coordinator ------------------------------------------------------------------------

    def check_model(self, model: Model) -> None:
        """Check that the model's units can be matched, and note how."""
        if model.section is None:
            raise RuntimeError("This model was not built from a recipe.")
        section = complete_model(model.section)
        self._network = MatchedNetwork(section, model.shape, model.classes, self.settings.decides)
        self._check_network(self._network)

    def can_carry_state(self) -> bool:
        """Return whether the loss calls the model once per step."""
        return is_single_pass(objective_of(self.training))

    def _check_network(self, network: MatchedNetwork) -> None:
        """Check that the network has units to match, and meets the requirements of ``quadratic``.

        Raises:
            RecipeError: ``model.groups`` or ``algorithm.model``.
        """
        local = network.local
        if not local.widths:
            raise RecipeError(
                f"The model {network.section.name} has no units to match: it has no hidden layer.",
                code="algorithm.model",
                hint="add a hidden layer, or choose fedavg",
            )
        recurrent = any(
            is_recurrent(name, local, group)
            for layer in local.layers
            for name in layer.weights
            for group in layer.outputs
        )
        if self.settings.quadratic and not recurrent:
            raise RecipeError(
                f"The model {network.section.name} has no recurrent weights that could count in"
                " the matching.",
                code="algorithm.model",
                hint="set algorithm.quadratic = false, or model.name = lstm",
            )

    def start(self, weights: Tensors, roster: Roster, seed: int) -> State:
        """Start with a global model that has a device's widths."""
        del roster
        if self._network is None:
            raise RuntimeError("Call check_model first; it determines the matched layers.")
        widths = self._network.local.widths
        counts: Tensors = {name: np.zeros(width, np.int64) for name, width in widths.items()}
        groups: dict[str, Tensors] = {WEIGHTS: weights, COUNTS: counts, ATOMS: {}}
        params = {NETWORK: self._network.to_json(), STEP: 0, DEVICES: [], SEED: seed, LAYERS: []}
        return State(0, {**groups, MATCHED: {}, NEW_ATOMS: {}, NEW_COUNTS: {}}, params)

    def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
        """Ask for the next layer: a new cohort for the first, the senders of the first for others.

        If too few of those are connected, and enough others, the round restarts.
        """
        if state.round >= self.rounds.count:
            return Finished()
        step = state.params[STEP]
        if step == 0:
            return self._exchanges.fit(state, draw(roster, self.rounds, seed))
        there = tuple(member for member in roster if member.device in state.params[DEVICES])
        count = len(state.params[DEVICES])
        cohort = draw(there, self.rounds.model_copy(update={"cohort": count}), seed)
        anew = draw(roster, self.rounds, seed)
        if len(cohort.members) < cohort.quorum <= len(anew.members) >= anew.quorum:
            return self._exchanges.again(state, anew)
        if step == len(MatchedNetwork.of(state).steps):
            return self._exchanges.statistics(state, cohort)
        return self._exchanges.fit(state, cohort)

    @property
    def _exchanges(self) -> Exchanges:
        by_labels = self.settings.last_layer == "classes" and self.training.loss == "cross_entropy"
        return Exchanges(self.settings, by_labels, self.rounds.deadline)

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        """Match and merge the layers of the exchange; without an answer, change nothing."""
        limits = {
            question.device: min(question.samples, MOST_SAMPLES) for question in exchange.questions
        }
        # Sorted, so that the matching does not depend on the order of answers
        given = [
            replace(answer, samples=max(1, min(answer.samples, limits[answer.device])))
            for answer in sorted(answers, key=lambda answer: answer.device)
        ]
        if not given:
            return state
        if exchange.name == STATISTICS:
            return after_statistics(state, given)
        begun = begun_anew(state) if begins(exchange) else state
        return after_step(self.settings, begun, given)

    def reject_reason(self, exchange: Exchange, answer: Answer, model: Model) -> str:
        """Return why label counts or measured statistics cannot be used, or nothing."""
        del model
        if exchange.name != STATISTICS:
            return wrong_counts(answer)
        arrays = answer.groups[STATISTICS].arrays
        try:
            check_statistics(MeasuredStatistics(answer.samples, arrays), arrays)
        except DataError as error:
            return error.message
        return ""

    def view(self, state: State) -> tuple[MethodTable, ...]:
        """Return the widths that were found."""
        return (layer_view(state),)

    def round_metrics(self, state: State) -> Mapping[str, float]:
        """Return the growth of the global model."""
        return growth_metric(state.params.get(GROWTH))

    def remarks(self, before: State, exchange: Exchange, after: State) -> tuple[Remark, ...]:
        """Say which widths were found, and that devices are left out."""
        return match_remarks(self.settings, before, exchange, after)

    def model(self, state: State) -> ModelSection | None:
        """Return the network with the widths that were found."""
        return MatchedNetwork.of(state).with_widths(widths_of(state.groups[COUNTS]))

    def evaluation(self, state: State, roster: Roster, seed: int) -> Exchange:
        """Ask devices to test the global model."""
        return self._exchanges.evaluation(state, draw_testers(roster, self.rounds, seed))

    # -- the device -----------------------------------------------------------------------------

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        """Train the unmatched layers, or measure statistics."""
        if task.question == STATISTICS:
            return StatisticsJob(complete_weights(task, device))
        return MatchingDeviceHalf(self.settings, self.training, self.images, task, device).prepare()

    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        """Send the layer that is matched next, or the statistics."""
        if task.question == STATISTICS:
            assert isinstance(result, dict)
            measured = {STATISTICS: Group(result, "fp32")}
            return Answer(task.device, len(device.train), measured)
        assert isinstance(result, Trained)
        return MatchingDeviceHalf(self.settings, self.training, self.images, task, device).answer(
            result
        )

    def eval_job(self, task: DeviceTask, device: DeviceView) -> DeviceTest:
        """Test the global model."""
        return EvalJob(complete_weights(task, device), device.test, self.training.loss)

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
from typing import ClassVar

import numpy as np

from edgefed.algorithms.base import (
    Algorithm,
    AlgorithmSettings,
    Answer,
    DeviceTask,
    DeviceTest,
    DeviceView,
    EvalJob,
    Exchange,
    Finished,
    MatchReport,
    Payload,
    Question,
    Remark,
    ReplyRole,
    Result,
    Roster,
    State,
    Work,
)
from edgefed.algorithms.cohort_sampling import Cohort, draw, draw_testers
from edgefed.algorithms.fedavg import MAX_DELTA, MOST_SAMPLES
from edgefed.algorithms.fedma_device_half import DeviceHalf, global_weights
from edgefed.algorithms.fedma_merging import after_step
from edgefed.algorithms.fedma_records import (
    ATOMS,
    COUNTS,
    DEVICES,
    GROWTH,
    LABELS,
    LAYER,
    LAYERS,
    MATCHED,
    NETWORK,
    NEW_ATOMS,
    NEW_COUNTS,
    SEED,
    STEP,
    WEIGHTS,
    MatchedNetwork,
    atoms_of,
    most_held,
    part,
    widths_of,
)
from edgefed.algorithms.fedma_report import match_remarks, match_report
from edgefed.algorithms.fedma_settings import FedMaSettings
from edgefed.config.recipe import ModelSection
from edgefed.learn.models import Model, complete_model
from edgefed.learn.types import Tensors, Trained
from edgefed.wire.tensors import TensorSpec


class FedMa(Algorithm[FedMaSettings]):
    """Matched averaging, layer by layer."""

    name = "fedma"
    summary = "Match units before they are averaged, layer by layer; the width adapts"
    paper = "Wang et al., ICLR 2020, arXiv 2002.06440"
    Settings: ClassVar[type[AlgorithmSettings]] = FedMaSettings
    _network: MatchedNetwork | None = None

    # -- the coordinator ------------------------------------------------------------------------

    def check_model(self, model: Model) -> None:
        """Check that the model's units can be matched, and note how."""
        if model.section is None:
            raise RuntimeError("This model was not built from a recipe.")
        section = complete_model(model.section)
        self._network = MatchedNetwork(section, model.shape, model.classes, self.settings.decides)
        check_network(self._network, self.settings)

    def start(self, weights: Tensors, roster: Roster, seed: int) -> State:
        """Begin with a global model that has a device's widths."""
        del roster
        if self._network is None:
            raise RuntimeError("check_model says what is matched; call it first.")
        widths = self._network.local.widths
        counts: Tensors = {name: np.zeros(width, np.int64) for name, width in widths.items()}
        groups: dict[str, Tensors] = {WEIGHTS: weights, COUNTS: counts, ATOMS: {}}
        params = {NETWORK: self._network.to_json(), STEP: 0, DEVICES: [], SEED: seed, LAYERS: []}
        return State(0, {**groups, MATCHED: {}, NEW_ATOMS: {}, NEW_COUNTS: {}}, params)

    def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
        """Ask for the next layer: a new cohort for the first, and those who sent it for others."""
        step = state.params[STEP]
        if state.round >= self.rounds.count:
            return Finished()
        if step == 0:
            return self._exchange(state, draw(roster, self.rounds, seed))
        there = tuple(each for each in roster if each.device in state.params[DEVICES])
        count = len(state.params[DEVICES])
        cohort = draw(there, self.rounds.model_copy(update={"cohort": count}), seed)
        return self._exchange(state, cohort)

    def _exchange(self, state: State, cohort: Cohort) -> Exchange:
        """Return the exchange of the state's next step."""
        network, step = MatchedNetwork.of(state), state.params[STEP]
        wanted, is_last = self._wanted(network, step)
        model = network.with_widths(widths_of(state.groups[NEW_COUNTS]))
        blobs, payloads = self._known_layers(state, network)
        roles = {LAYER: ReplyRole(self._specs(state, network, wanted), MAX_DELTA, trained=True)}
        params = {"step": step, "wanted": list(wanted), "last": is_last, "labels": False}
        if step == 0:
            params |= {"widths": widths_of(state.groups[COUNTS]), "seed": state.params[SEED]}
        if is_last and self._asks_labels:
            params["labels"] = True
            counts = TensorSpec("float32", (network.classes,))
            roles[LABELS] = ReplyRole({"count": counts}, MOST_SAMPLES, optional=True)
        questions = []
        for member in cohort.members:
            own, name = self._atoms(state, network, member.device), f"{ATOMS}-{member.device}"
            payloads[name] = Payload(own, "fp32")
            questions.append(
                Question(member.device, member.samples, {**blobs, ATOMS: name}, params)
            )
        return Exchange(
            name="fit" if is_last else LAYER,
            round=state.round + 1,
            questions=tuple(questions),
            payloads=payloads,
            wanted=cohort.wanted,
            quorum=cohort.quorum,
            deadline=self.rounds.deadline,
            preparatory=not is_last,
            reply_roles=roles,
            model=model,
            retired=frozenset(_payload(k, state.round) for k in range(len(network.steps)) if step),
        )

    def _wanted(self, network: MatchedNetwork, step: int) -> tuple[tuple[str, ...], bool]:
        """Return the names of the weights that a step asks for, and whether it is the last one."""
        steps = network.steps
        if self.settings.retrain_epochs == 0:
            return tuple(name for each in steps for name in each.weights), True
        return steps[step].weights, step == len(steps) - 1

    @property
    def _asks_labels(self) -> bool:
        classes = self.settings.last_layer == "classes"
        return classes and self.training.loss == "cross_entropy"

    def _known_layers(
        self, state: State, network: MatchedNetwork
    ) -> tuple[dict[str, str], dict[str, Payload]]:
        """Return the layers that a step's tasks bring: names of payloads by role, and payloads.

        In the first step these are all layers of the last complete model; then those that are
        matched. Their names stay the same until the next round, so no device is sent one twice.
        """
        step = state.params[STEP]
        number, count = (state.round + 1, step) if step else (state.round, len(network.steps))
        weights = state.groups[MATCHED if step else WEIGHTS]
        blobs = {f"{LAYER}-{k}": _payload(k, number) for k in range(count)}
        codec = self.settings.layer_codec if number else "fp32"
        payloads = {
            _payload(k, number): Payload(part(weights, network.steps[k].weights), codec)
            for k in range(count)
        }
        return blobs, payloads

    def _atoms(self, state: State, network: MatchedNetwork, device: str) -> Tensors:
        """Return a device's assignments: all of them, or those of the last step."""
        step = state.params[STEP]
        if step == 0:
            known = atoms_of(state, ATOMS, device)
            widths = network.local.widths
            counts = state.groups[COUNTS]
            return known or {each: most_held(counts[each], widths[each]) for each in counts}
        known = atoms_of(state, NEW_ATOMS, device)
        return {group: known[group] for group in network.steps[step - 1].decides}

    def _specs(
        self, state: State, network: MatchedNetwork, names: tuple[str, ...]
    ) -> dict[str, TensorSpec]:
        """Return what the weights look like that a step asks for."""
        groups = network.local.resized(widths_of(state.groups[NEW_COUNTS]))
        specs = {}
        for name in names:
            like = state.groups[WEIGHTS][name]
            shape = list(like.shape)
            for axis, segments in groups.axes_of(name).items():
                shape[axis] = groups.size(segments)
            specs[name] = TensorSpec(like.dtype.name, tuple(shape))
        return specs

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        """Match and merge the layers that were asked for; without an answer, change nothing."""
        limits = {each.device: min(each.samples, MOST_SAMPLES) for each in exchange.questions}
        given = sorted(answers, key=lambda each: each.device)
        if not given:
            return state
        return after_step(self.settings, state, given, limits)

    def match_report(self, state: State) -> MatchReport:
        """Return the widths that were found."""
        return match_report(state)

    def remarks(self, before: State, exchange: Exchange, after: State) -> tuple[Remark, ...]:
        """Say which widths were found, and that devices are left out."""
        return match_remarks(self.settings, before, exchange, after)

    def round_metrics(self, state: State) -> Mapping[str, float]:
        """Return how much larger than a device's the global model is."""
        growth = state.params.get(GROWTH)
        return {} if growth is None else {GROWTH: growth}

    def model(self, state: State) -> ModelSection | None:
        """Return the network with the widths that were found."""
        return MatchedNetwork.of(state).with_widths(widths_of(state.groups[COUNTS]))

    def evaluation(self, state: State, roster: Roster, seed: int) -> Exchange:
        """Ask devices to test the model, of which they have all layers but the last."""
        network = MatchedNetwork.of(state)
        blobs, payloads = self._known_layers(state, network)
        cohort = draw_testers(roster, self.rounds, seed)
        return Exchange(
            name="evaluate",
            round=state.round,
            questions=tuple(Question(m.device, m.samples, blobs) for m in cohort.members),
            payloads=payloads,
            wanted=cohort.wanted,
            quorum=1,
            deadline=self.rounds.deadline,
        )

    # -- the device -----------------------------------------------------------------------------

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        """Train what is not matched yet."""
        return DeviceHalf(self.settings, self.training, task, device).prepare()

    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        """Send the layer that is matched next."""
        assert isinstance(result, Trained)
        return DeviceHalf(self.settings, self.training, task, device).answer(result)

    def eval_job(self, task: DeviceTask, device: DeviceView) -> DeviceTest:
        """Test the global model."""
        weights = global_weights(task.groups)
        return EvalJob(part(weights, device.model.names), device.test, self.training.loss)


def check_network(network: MatchedNetwork, settings: FedMaSettings) -> None:
    """Check that a network can be matched with these settings."""
    del settings
    _ = network.local


def _payload(step: int, number: int) -> str:
    """Return the name of the payload with a step's layers, merged in the round of a number."""
    return f"{LAYER}-{step}-{number}"

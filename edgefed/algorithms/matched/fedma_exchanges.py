"""The exchanges of FedMA: the payloads to devices in each step, and the form of their answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from edgefed.algorithms.averaging.class_shares import LABELS, labels_role
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.cohort_sampling import Cohort
from edgefed.algorithms.interface.exchange import Exchange, Payload, Question, ReplyRole
from edgefed.algorithms.matched.fedma_records import (
    ATOMS,
    COUNTS,
    LAYER,
    MATCHED,
    NEW_ATOMS,
    NEW_COUNTS,
    SEED,
    STATISTICS,
    STEP,
    WEIGHTS,
    MatchedNetwork,
    atoms_of,
    begun_anew,
    part,
    widths_of,
)
from edgefed.algorithms.matched.fedma_settings import FedMaSettings
from edgefed.learn.aggregation.pooled_statistics import LARGEST
from edgefed.learn.base.types import Tensors
from edgefed.learn.base.unit_moves import most_held
from edgefed.learn.matching.steps import statistics_of
from edgefed.wire.tensors import TensorSpec

MAX_WEIGHT = 1000.0
"""Largest magnitude of a weight; a training that ends beyond it has diverged."""

Sent = tuple[dict[str, str], dict[str, Payload]]
"""Names of payloads by role, and the payloads."""


@dataclass(frozen=True)
class Exchanges:
    """Makes the exchange of a state's next step.

    Attributes:
        settings: of the algorithm.
        asks_labels: whether the output layer is averaged by label counts.
        deadline: of each exchange, in seconds.
    """

    settings: FedMaSettings
    asks_labels: bool
    deadline: float

    def fit(self, state: State, cohort: Cohort) -> Exchange:
        """Return the exchange that asks for a step's layers; the round's last one is ``fit``."""
        network, step = MatchedNetwork.of(state), state.params[STEP]
        wanted, is_last = self._wanted(network, step)
        blobs, payloads = self.known_layers(state)
        specs = specs_of_weights(state, network, wanted)
        roles = {LAYER: ReplyRole(specs, MAX_WEIGHT, trained=True)}
        params: dict[str, Any] = {"step": step, "wanted": list(wanted), "last": is_last}
        if step == 0:
            params |= {"widths": widths_of(state.groups[COUNTS]), "seed": state.params[SEED]}
        if is_last and self.asks_labels:
            params["labels"] = True
            roles[LABELS] = labels_role(network.classes)
        questions = []
        for place, member in enumerate(cohort.members):
            # Named by place: names by device would be kept for all that ever took part.
            own = {**blobs, ATOMS: f"{ATOMS}-{place}"}
            payloads[own[ATOMS]] = Payload(device_atoms(state, network, member.device), "fp32")
            questions.append(Question(member.device, member.samples, own, params))
        return Exchange(
            name="fit" if is_last else LAYER,
            round=state.round + 1,
            questions=tuple(questions),
            payloads=payloads,
            wanted=cohort.wanted,
            quorum=cohort.quorum,
            deadline=self.deadline,
            preparatory=not is_last,
            reply_roles=roles,
            model=network.with_widths(widths_of(state.groups[NEW_COUNTS])),
            # From the second step on, nobody starts from the last complete model
            retired=_last_rounds(state, network) if step else frozenset(),
            detail=self._detail(network, step),
        )

    def again(self, state: State, cohort: Cohort) -> Exchange:
        """Return the first exchange of the state's round once more, for another cohort."""
        network, number = MatchedNetwork.of(state), state.round + 1
        # What the round has sent so far is of another cohort's matching
        sent = (_payload(step, number) for step in range(len(network.steps)))
        return replace(self.fit(begun_anew(state), cohort), retired=frozenset(sent))

    def _detail(self, network: MatchedNetwork, step: int) -> str:
        """Return which layer a step asks for; nothing for all layers at once."""
        if self.settings.retrain_epochs == 0:
            return ""
        return f"{network.steps[step].name}, {step + 1} of {len(network.steps)}"

    def _wanted(self, network: MatchedNetwork, step: int) -> tuple[tuple[str, ...], bool]:
        """Return the names of the weights that a step asks for, and whether it is the last one."""
        steps = network.steps
        if self.settings.retrain_epochs == 0:
            return tuple(name for network_step in steps for name in network_step.weights), True
        return steps[step].weights, step == len(steps) - 1

    def statistics(self, state: State, cohort: Cohort) -> Exchange:
        """Return the exchange that measures batch normalisation's statistics anew."""
        network = MatchedNetwork.of(state)
        blobs, payloads = self.known_layers(state)
        names = [name for name in statistics_of(state.groups[WEIGHTS]) if _is_measured(name)]
        specs = specs_of_weights(state, network, tuple(names))
        return Exchange(
            name=STATISTICS,
            round=state.round + 1,
            questions=tuple(Question(m.device, m.samples, blobs) for m in cohort.members),
            payloads=payloads,
            wanted=cohort.wanted,
            quorum=cohort.quorum,
            deadline=self.deadline,
            preparatory=True,
            reply_roles={STATISTICS: ReplyRole(specs, LARGEST)},
            model=network.with_widths(widths_of(state.groups[NEW_COUNTS])),
            retired=_last_rounds(state, network),
        )

    def evaluation(self, state: State, cohort: Cohort) -> Exchange:
        """Return the exchange that tests the last complete model, of which devices hold most."""
        blobs, payloads = self.known_layers(begun_anew(state))
        return Exchange(
            name="evaluate",
            round=state.round,
            questions=tuple(Question(m.device, m.samples, blobs) for m in cohort.members),
            payloads=payloads,
            wanted=cohort.wanted,
            quorum=1,
            deadline=self.deadline,
        )

    def known_layers(self, state: State) -> Sent:
        """Return the layers that the state's tasks bring.

        Before the first step of a round these are all layers of the last complete model; then those
        that are matched. Their names stay the same until the next round is under way, so no device
        is sent one twice.
        """
        network, step = MatchedNetwork.of(state), state.params[STEP]
        number, count = (state.round + 1, step) if step else (state.round, len(network.steps))
        weights = state.groups[MATCHED if step else WEIGHTS]
        # The initial model has not been rounded by any codec
        codec = self.settings.layer_codec if number else "fp32"
        blobs = {f"{LAYER}-{k}": _payload(k, number) for k in range(count)}
        payloads = {
            _payload(k, number): Payload(part(weights, network.steps[k].weights), codec)
            for k in range(count)
        }
        statistics = statistics_of(state.groups[WEIGHTS])
        if statistics and not step:
            blobs[STATISTICS] = f"{STATISTICS}-{number}"
            payloads[blobs[STATISTICS]] = Payload(part(weights, statistics), "fp32")
        return blobs, payloads


def device_atoms(state: State, network: MatchedNetwork, device: str) -> Tensors:
    """Return a device's assignments: all of them, or those of the last step.

    A device that has none, because it is new or missed the last round, gets those atoms that most
    devices have.
    """
    step = state.params[STEP]
    if step:
        known = atoms_of(state, NEW_ATOMS, device)
        return {group: known[group] for group in network.steps[step - 1].decides}
    widths, counts = network.local.widths, state.groups[COUNTS]
    known = atoms_of(state, ATOMS, device)
    return known or most_held(counts, widths)


def specs_of_weights(
    state: State, network: MatchedNetwork, names: tuple[str, ...]
) -> dict[str, TensorSpec]:
    """Return the specifications of weights in the widths of the current round."""
    groups = network.local.resized(widths_of(state.groups[NEW_COUNTS]))
    weights = state.groups[WEIGHTS]
    return {
        name: TensorSpec(weights[name].dtype.name, groups.shape_of(name, weights[name].shape))
        for name in names
    }


def _is_measured(name: str) -> bool:
    """Whether a statistic is a mean or a variance, not a counter."""
    return not name.endswith("num_batches_tracked")


def _payload(step: int, number: int) -> str:
    """Return the name of the payload with a step's layers, merged in the round of a number."""
    return f"{LAYER}-{step}-{number}"


def _last_rounds(state: State, network: MatchedNetwork) -> frozenset[str]:
    """Return the names of the payloads with the last complete model."""
    layers = (_payload(step, state.round) for step in range(len(network.steps)))
    return frozenset((*layers, f"{STATISTICS}-{state.round}"))

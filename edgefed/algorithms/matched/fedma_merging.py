"""The coordinator's half of FedMA between two exchanges: match, average, and advance by a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgefed.algorithms.averaging.class_shares import class_shares
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.matched.fedma_matching import GroupMatching, averaging_of
from edgefed.algorithms.matched.fedma_records import (
    ATOMS,
    COUNTS,
    DEVICES,
    GROWTH,
    LAYER,
    LAYERS,
    MATCHED,
    NEW_ATOMS,
    NEW_COUNTS,
    SEED,
    STATISTICS,
    STEP,
    WEIGHTS,
    MatchedNetwork,
    part,
    widths_of,
)
from edgefed.algorithms.matched.fedma_settings import FedMaSettings
from edgefed.algorithms.matched.growth import growth_of
from edgefed.algorithms.matched.matched_layers import LayerMatch
from edgefed.learn.aggregation.pooled_statistics import MeasuredStatistics, pooled_statistics
from edgefed.learn.base.permutation_groups import PermutationGroups
from edgefed.learn.base.types import Array, Tensors
from edgefed.learn.base.unit_moves import scatter
from edgefed.learn.matching.layer_merging import (
    DeviceLayer,
    MergedStep,
    merge_output,
    merge_step,
)
from edgefed.learn.matching.steps import MatchingStep, statistics_of
from edgefed.seeds import generator
from edgefed.wire.codecs import CODECS, decode
from edgefed.wire.tensors import specs_of

LEAST_HOLDERS = 0.5
"""A class that a smaller share of the devices has is averaged by samples: averaged by class
proportions, runs with two classes per device diverged (docs/fedma.md)."""


def after_step(settings: FedMaSettings, state: State, answers: Sequence[Answer]) -> State:
    """Return the state after the answers to a step, or to all steps at once.

    Args:
        settings: of the algorithm.
        state: before.
        answers: one at least, sorted by device, with the samples that each weighs.
    """
    network = MatchedNetwork.of(state)
    at_once = settings.retrain_epochs == 0
    merging = _Merging.begun(settings, state, network, answers)
    for number in range(state.params[STEP], len(network.steps)):
        merging = merging.stepped(number)
        if not at_once:
            break
    return merging.ended()


@dataclass(frozen=True)
class _Merging:
    """The answers to a step, and the layers merged so far.

    Attributes:
        samples: float64 (devices,), the weight of each device.
        local: the unmerged layers of each device, in the widths of ``groups``.
        atoms: each device's assignments so far in this round.
        groups: the network with the widths found so far.
        layers: reports of the groups matched so far from these answers.
        matched: the global model's layers so far.
        step: number of the next step, from 0.
    """

    settings: FedMaSettings
    state: State
    network: MatchedNetwork
    answers: Sequence[Answer]
    samples: Array
    local: Sequence[Tensors]
    atoms: Sequence[dict[str, Array]]
    groups: PermutationGroups
    layers: tuple[LayerMatch, ...]
    matched: Tensors
    step: int

    @classmethod
    def begun(
        cls,
        settings: FedMaSettings,
        state: State,
        network: MatchedNetwork,
        answers: Sequence[Answer],
    ) -> _Merging:
        """Return the answers, before any of them is merged."""
        known: dict[str, dict[str, Array]] = {answer.device: {} for answer in answers}
        for name, indices in state.groups[NEW_ATOMS].items():
            group, _, device = name.partition("/")
            if device in known:
                known[device][group] = indices
        return cls(
            settings=settings,
            state=state,
            network=network,
            answers=answers,
            samples=np.array([answer.samples for answer in answers], np.float64),
            local=[dict(answer.groups[LAYER].arrays) for answer in answers],
            atoms=list(known.values()),
            groups=network.local.resized(widths_of(state.groups[NEW_COUNTS])),
            layers=(),
            matched=dict(state.groups[MATCHED]),
            step=state.params[STEP],
        )

    def stepped(self, number: int) -> _Merging:
        """Return the merge after a step."""
        step = self.network.steps[number]
        if not step.outputs:
            weights = merge_output(step.layers[0], self.local, self._proportions())
            return replace(
                self, matched={**self.matched, **self._rounded(weights)}, step=number + 1
            )
        weighs = self.samples if self.settings.weighting == "examples" else self.samples * 0 + 1
        devices = [
            DeviceLayer(part(local, step.weights), atoms, float(share))
            for local, atoms, share in zip(self.local, self.atoms, weighs, strict=True)
        ]
        merged = merge_step(
            step, self.groups, devices, self._matching(), averaging_of(self.settings)
        )
        assignments = [
            {
                group: match.assignments[k].astype(np.int32)
                for group, match in merged.matches.items()
            }
            for k in range(len(self.answers))
        ]
        rest = [name for name in self.local[0] if name not in step.weights]
        return replace(
            self,
            local=[
                scatter(part(local, rest), self.groups, merged.groups, own)
                for local, own in zip(self.local, assignments, strict=True)
            ],
            atoms=[{**before, **own} for before, own in zip(self.atoms, assignments, strict=True)],
            groups=merged.groups,
            layers=(*self.layers, *self._reports(step, merged)),
            matched={**self.matched, **self._rounded(merged.weights)},
            step=number + 1,
        )

    def _matching(self) -> GroupMatching:
        """Return the matching of the next step's groups."""
        state = self.state
        return GroupMatching(
            settings=self.settings,
            local=self.network.local,
            groups=self.groups,
            samples=self.samples,
            seed=state.params[SEED],
            round=state.round,
            step=self.step,
        )

    def _proportions(self) -> Array:
        """Return the weight of each device's output layer for each class: (devices, classes)."""
        announced = {answer.device: answer.samples for answer in self.answers}
        least = 0.0 if self.settings.reference else LEAST_HOLDERS
        by = self.settings.last_layer
        return class_shares(self.answers, announced, self.network.classes, by, least)

    def _rounded(self, weights: Tensors) -> Tensors:
        """Return merged weights as the codec of layers has them."""
        state, codec = self.state, CODECS[self.settings.layer_codec]
        rounding = generator(state.params[SEED], "round", state.round, self.step)
        ordered = {name: weights[name] for name in weights}
        # Devices receive the rounded layers, so these are the global model
        return decode(codec.encode(ordered, rounding), specs_of(ordered))

    def _reports(self, step: MatchingStep, merged: MergedStep) -> list[LayerMatch]:
        """Return the results of a step's matching."""
        return [
            LayerMatch(
                layer=group,
                local=self.network.local.widths[group],
                atoms=len(match.counts),
                holders=float(match.counts.mean()),
                objective=float(match.objective),
                apart=match.apart,
            )
            for group, match in merged.matches.items()
        ]

    def ended(self) -> State:
        """Return the state after the steps."""
        state, counts = self.state, {**self.state.groups[NEW_COUNTS]}
        for group in self.groups.widths:
            # A group counts once all devices have an assignment of it
            if all(group in own for own in self.atoms):
                every = np.concatenate([own[group] for own in self.atoms])
                counts[group] = np.bincount(every, minlength=self.groups.widths[group])
        atoms = {
            f"{group}/{answer.device}": indices
            for answer, own in zip(self.answers, self.atoms, strict=True)
            for group, indices in own.items()
        }
        layers = [*state.params[LAYERS][: len(state.groups[NEW_COUNTS])]]
        layers += [vars(layer) for layer in self.layers]
        layers += state.params[LAYERS][len(layers) :]  # as they were matched in the round before
        params = {
            **state.params,
            STEP: self.step,
            DEVICES: [answer.device for answer in self.answers],
            LAYERS: layers,
        }
        groups = {**state.groups, MATCHED: self.matched, NEW_ATOMS: atoms, NEW_COUNTS: counts}
        going = State(state.round, groups, params)
        # With batch normalisation, the statistics are still to be measured
        is_whole = self.step == len(self.network.steps) and not statistics_of(groups[WEIGHTS])
        return completed(going, {}) if is_whole else going


def after_statistics(state: State, answers: Sequence[Answer]) -> State:
    """Return the state after devices measured batch normalisation's statistics.

    Args:
        state: with all layers matched.
        answers: one at least, with the samples that each weighs.
    """
    measured = {
        answer.device: MeasuredStatistics(answer.samples, answer.groups[STATISTICS].arrays)
        for answer in answers
    }
    return completed(state, pooled_statistics(measured))


def completed(state: State, statistics: Tensors) -> State:
    """Return the state at the end of a round: the matched layers become the global model."""
    groups = state.groups
    before = groups[WEIGHTS]
    weights = part({**before, **groups[MATCHED], **statistics}, tuple(before))
    growth = growth_of(weights, MatchedNetwork.of(state).local)
    done = {WEIGHTS: weights, ATOMS: groups[NEW_ATOMS], COUNTS: groups[NEW_COUNTS]}
    params = {**state.params, STEP: 0, GROWTH: growth}
    nothing: dict[str, Tensors] = {MATCHED: {}, NEW_ATOMS: {}, NEW_COUNTS: {}}
    return State(state.round + 1, {**groups, **done, **nothing}, params)

"""Mixtures of experts whose devices, shares and answers a test chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from edgefed.algorithms.experts.expert_records import (
    MIXTURE,
    MIXTURES,
    PHI,
    TABLE,
    KnownMixture,
    mixtures_of,
    role,
)
from edgefed.algorithms.experts.fedmoe import FedMoe
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.files.samples import Samples
from edgefed.learn.base.types import Array, Tensors
from tests.algorithms.play import Players, algorithm, asked, trainer
from tests.run_fixture import samples

FORCED = 200.0
"""A logit that leaves the others' shares at 0 as a float32."""


def moe(rounds: int = 2, **settings: Any) -> FedMoe:
    """Return the algorithm itself, of a run with so many rounds of short training."""
    return cast(FedMoe, algorithm("fedmoe", rounds, **settings))


def with_table(state: State, table: Array) -> State:
    """Return a state with another table of shares."""
    phi = {PHI: np.asarray(table, np.float32)}
    return replace(state, groups={**state.groups, TABLE: phi})


def with_mixtures(state: State, shares: Mapping[str, Sequence[float]], round: int = 1) -> State:  # noqa: A002
    """Return a state in which the devices have answered with these shares."""
    known = {
        device: KnownMixture(tuple(each), tuple(np.flatnonzero(each).tolist()), 5, round).to_json()
        for device, each in shares.items()
    }
    return replace(state, params={**state.params, MIXTURES: known})


def only_labels(part: Samples, labels: Sequence[int]) -> Samples:
    """Return the samples of these labels."""
    rows = np.flatnonzero(np.isin(part.targets, labels))
    return Samples(part.inputs[rows], part.targets[rows])


def groups_of_labels() -> Players:
    """Return four devices, of which the first two have label 0 alone, and the others 1 and 2."""
    parts = [
        only_labels(samples(40, seed), labels)
        for seed, labels in ((1, [0]), (2, [0]), (3, [1, 2]), (4, [1, 2]))
    ]
    return Players([Samples(each.inputs[:8], each.targets[:8]) for each in parts], trainer())


def made_answer(
    state: State, device: str, kept: Sequence[float], value: float = 1.0, count: int = 5
) -> Answer:
    """Return an answer whose experts have all moved by ``value``, with shares ``kept``."""
    shares = np.asarray(kept, np.float32)
    groups = {MIXTURE: Group({"raw": shares, "kept": shares})}
    for expert in np.flatnonzero(shares):
        groups[role(int(expert))] = Group(filled(state.groups[role(0)], value))
    if TABLE in state.groups:
        groups[TABLE] = Group(filled(state.groups[TABLE], 0.0))
    return Answer(device, count, groups)


def filled(arrays: Tensors, value: float) -> Tensors:
    return {name: np.full_like(array, value) for name, array in arrays.items()}


def merged(half: FedMoe, state: State, exchange: Exchange, *answers: Answer) -> State:
    return half.merge(state, asked(exchange), answers)


def shares_known(state: State) -> dict[str, tuple[float, ...]]:
    return {device: each.shares for device, each in mixtures_of(state).items()}

"""A mixture of experts is FedAvg where it should be: of one expert, and of one for each group."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.experts.expert_records import STEPS, memory_of, role
from edgefed.learn.base.types import Tensors
from edgefed.learn.modeling.initial_weights import redrawn
from tests.algorithms.moe_play import FORCED, groups_of_labels, moe, with_table
from tests.algorithms.play import Players, algorithm, asked, bits, planned_for
from tests.run_fixture import CLASSES

ADAM = {"server": "adam", "adam_variant": "kingma", "beta2": 0.999, "tau": 1e-8}
RATE = {"server_learning_rate": 0.01}
SGD = {"server": "sgd", "server_learning_rate": 0.7}


@pytest.mark.parametrize(("mine", "theirs"), [(RATE, ADAM | RATE), (SGD, SGD)])
def test_one_expert_is_fedavg_with_that_server_optimiser_to_the_bit(
    mine: dict[str, Any], theirs: dict[str, Any]
) -> None:
    half, plain = moe(4, experts=1, **mine), algorithm("fedavg", 4, **theirs)
    ours, others = Players().play(half), Players().play(plain)
    for (state, _), (other, _) in zip(ours, others, strict=True):
        assert bits(half.models(state)) == bits(plain.models(other))
        assert bits(state.groups[memory_of(role(0))]) == bits(other.groups["memory"])
    for (_, mine_asked), (_, theirs_asked) in zip(ours, others, strict=True):
        devices = [question.device for question in theirs_asked.questions]
        assert [question.device for question in mine_asked.questions] == devices
        assert mine_asked.payloads.keys() == {role(0)}


def test_another_rate_is_not_fedavg() -> None:
    one = Players().play(moe(2, experts=1, server_learning_rate=0.02))[-1][0]
    other = Players().play(algorithm("fedavg", 2, **ADAM, **RATE))[-1][0]
    assert bits(one.groups[role(0)]) != bits(other.groups["weights"])


def forced() -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return a table that gives label 0 the first expert and all others the second."""
    table = np.full((CLASSES, 2), -FORCED, np.float32)
    table[0, 0] = table[1:, 1] = FORCED
    return table


def alone(players: Players, devices: list[int], weights: Tensors, rounds: int) -> Tensors:
    """Return the weights after generalised FedAvg on some of the devices."""
    half = algorithm("fedavg", rounds, **ADAM, **RATE)
    roster = tuple(players.roster[k] for k in devices)
    state = half.start(weights, roster, 11)
    for number in range(rounds):
        planned = planned_for(half, state, roster, number)
        state = half.merge(state, asked(planned), players.answers(half, planned))
    return state.groups["weights"]


@pytest.mark.parametrize("prune", [0.0, 0.5])
def test_an_expert_for_each_group_is_two_runs_of_fedavg(prune: float) -> None:
    # The gates' gradients must not reach the experts, which no run of FedAvg has.
    half = moe(3, experts=2, detach_gate_features=True, entropy_weight=0.0, prune=prune)
    players = groups_of_labels()
    state = with_table(players.start(half), forced())
    first = players.trainer.model.weights()
    for number in range(3):
        planned = players.planned(half, state, number)
        state = half.merge(state, asked(planned), players.answers(half, planned))
        assert state.params[STEPS] == [number + 1, number + 1]
    starts = (first, redrawn(first, 11, "expert", 1))
    for expert, (devices, weights) in enumerate(zip(([0, 1], [2, 3]), starts, strict=True)):
        expected = alone(groups_of_labels(), devices, weights, 3)
        for name, array in state.groups[role(expert)].items():
            assert np.abs(array - weights[name]).max() > 1e-3
            np.testing.assert_allclose(array, expected[name], atol=1e-6)


def test_an_expert_that_nobody_uses_stays_as_it_is() -> None:
    half, players = moe(2, experts=3, prune=0.5), groups_of_labels()
    table = np.full((CLASSES, 3), -FORCED, np.float32)
    table[:, 0] = FORCED
    state = with_table(players.start(half), table)
    before = state
    planned = players.planned(half, state)
    answers = players.answers(half, planned)
    assert [sorted(a.groups) for a in answers] == [["expert-0", "mixture", "table"]] * 4
    state = half.merge(state, asked(planned), answers)
    assert state.params[STEPS] == [1, 0, 0]
    for expert in (1, 2):
        for group in (role(expert), memory_of(role(expert))):
            assert bits(state.groups[group]) == bits(before.groups[group])
    (remark,) = half.remarks(before, planned, state)
    assert remark.warning
    assert remark.text == "round 1: one expert does nearly everything; the others are unused"


def test_the_order_of_answers_changes_no_bit() -> None:
    ends = []
    for order in (list, lambda answers: answers[::-1]):
        players = Players(order=order)
        ends.append(players.play(moe(3, experts=3, divergence=True, prune=0.9)))
    assert [bits(state) for state, _ in ends[0]] == [bits(state) for state, _ in ends[1]]


@cache
def ended(**settings: Any) -> Any:
    """Return what a run with these settings ends in."""
    half = moe(3, experts=3, **{"table_learning_rate": 0.3} | settings)
    return bits(Players().play(half)[-1][0].groups)


@pytest.mark.parametrize(
    ("setting", "other"),
    [
        ({"detach_gate_features": True}, {}),
        ({"entropy_weight": 0.0}, {}),
        ({"prune": 1.0, "prune_gate_targets": True}, {"prune": 1.0}),
        ({"entropy": "local"}, {}),
        ({"entropy": "direct"}, {}),
        ({"table_learning_rate": 0.5}, {}),
        ({"personal_bias": True}, {}),
        ({"gates": "averaged"}, {}),
        ({"beta1": 0.5}, {}),
        ({"beta2": 0.5}, {}),
        ({"epsilon": 0.1}, {}),
        ({"server": "sgd"}, {}),
        ({"start": "updates"}, {}),
        ({"condition": "device", "damping": 0.1}, {"condition": "device"}),
    ],
)
def test_every_setting_has_an_effect(setting: dict[str, Any], other: dict[str, Any]) -> None:
    assert ended(**setting) != ended(**other)

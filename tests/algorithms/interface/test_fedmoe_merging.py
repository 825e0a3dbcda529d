"""The coordinator's step for each expert: its mean, the table, hostile answers, and reports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.experts.expert_merging import ExpertSums, share_bits
from edgefed.algorithms.experts.expert_records import (
    GATE,
    MIXTURE,
    PHI,
    STEPS,
    TABLE,
    TABLE_STEPS,
    memory_of,
    mixtures_of,
    role,
)
from edgefed.algorithms.experts.fedmoe import FedMoe
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.learn.aggregation.exact_mean import MAX_TOTAL_WEIGHT
from edgefed.learn.base.mixture_table import marginal_entropy_gradient
from edgefed.wire.tensors import TensorSpec
from tests.algorithms.moe_play import filled, made_answer, merged, moe, with_table
from tests.algorithms.play import Players, bits

SGD = {"server": "sgd", "server_learning_rate": 1.0, "entropy_weight": 0.0}
SAMPLES = {"device-00": 5, "device-01": 9, "device-02": 6, "device-03": 4}


def begun(**settings: Any) -> tuple[FedMoe, State, Exchange]:
    half, players = moe(9, **settings), Players()
    state = players.start(half)
    exchange = players.planned(half, state)
    return half, state, exchange


def moved(before: State, after: State, expert: int) -> float:
    """Return by how much every weight of an expert has moved."""
    changes = [
        (array - before.groups[role(expert)][name]).ravel()
        for name, array in after.groups[role(expert)].items()
    ]
    found = np.concatenate(changes)
    assert np.ptp(found) < 1e-5
    return float(found.mean())


def test_each_expert_takes_the_mean_by_its_users_shares() -> None:
    half, state, exchange = begun(experts=2, **SGD)
    values = {"device-00": ((0.25, 0.75), 1.0), "device-01": ((1.0, 0.0), 2.0),
              "device-03": ((0.5, 0.5), -1.0)}  # fmt: skip
    answers = [made_answer(state, d, q, v, SAMPLES[d]) for d, (q, v) in values.items()]
    after = merged(half, state, exchange, *answers)
    for expert in (0, 1):
        weights = {d: SAMPLES[d] * q[expert] for d, (q, _) in values.items()}
        posterior = {d: each / sum(weights.values()) for d, each in weights.items()}
        assert sum(posterior.values()) == pytest.approx(1, abs=1e-15)
        expected = sum(posterior[d] * v for d, (_, v) in values.items())
        assert moved(state, after, expert) == pytest.approx(expected, abs=1e-6)


def test_a_lone_users_change_is_the_experts_however_small_its_share() -> None:
    half, state, exchange = begun(experts=2, **SGD)
    after = merged(half, state, exchange, made_answer(state, "device-00", (0.999, 0.001), 1.5))
    assert moved(state, after, 1) == pytest.approx(1.5, abs=1e-6)
    assert after.params[STEPS] == [1, 1]


def test_a_share_that_weighs_nothing_makes_no_step() -> None:
    half, state, exchange = begun(experts=2, **SGD)
    after = merged(half, state, exchange, made_answer(state, "device-00", (1.0, 1e-7), 1.5))
    assert after.params[STEPS] == [1, 0]
    assert bits(after.groups[role(1)]) == bits(state.groups[role(1)])


def test_only_experts_with_users_step_and_each_counts_its_own_steps() -> None:
    half, state, exchange = begun(experts=2, server_learning_rate=0.01)
    first = merged(half, state, exchange, made_answer(state, "device-00", (1.0, 0.0), 0.3))
    assert first.params[STEPS] == [1, 0]
    # The first step of Adam is one learning rate long, for whatever change.
    assert moved(state, first, 0) == pytest.approx(0.01, rel=1e-4)
    assert first.groups[memory_of(role(1))] == {}
    later = replace(exchange, round=2)
    second = merged(half, first, later, made_answer(first, "device-01", (0.0, 1.0), -0.2))
    assert second.params[STEPS] == [1, 1]
    assert moved(first, second, 1) == pytest.approx(-0.01, rel=1e-4)
    assert bits(second.groups[memory_of(role(0))]) == bits(first.groups[memory_of(role(0))])


def test_the_table_takes_the_mean_by_samples_and_the_pull_of_the_entropy() -> None:
    half, state, exchange = begun(experts=2, **{**SGD, "entropy_weight": 0.5})
    numbers = np.random.default_rng(3)
    state = with_table(state, numbers.normal(size=(3, 2)))
    answers, changes = [], {}
    for device in ("device-00", "device-01"):
        answer = made_answer(state, device, (0.5, 0.5), 0.0, SAMPLES[device])
        changes[device] = numbers.normal(size=(3, 2)).astype(np.float32)
        groups = {**answer.groups, TABLE: Group({PHI: changes[device]})}
        answers.append(Answer(device, SAMPLES[device], groups))
    after = merged(half, state, exchange, *answers)
    mean = (5 * changes["device-00"] + 9 * changes["device-01"]) / 14
    phi = state.groups[TABLE][PHI]
    pull = 0.5 * marginal_entropy_gradient(phi, np.full(3, 1 / 3))
    np.testing.assert_allclose(after.groups[TABLE][PHI], phi + mean + pull, atol=1e-6)
    assert after.params[TABLE_STEPS] == 1


def test_averaged_gates_take_the_mean_by_samples() -> None:
    half, state, exchange = begun(experts=2, gates="averaged", **SGD)
    assert set(exchange.payloads) == {role(0), role(1), TABLE, GATE}
    answers = []
    for device, value in (("device-00", 1.0), ("device-03", 4.0)):
        answer = made_answer(state, device, (0.5, 0.5), 0.0, SAMPLES[device])
        groups = {**answer.groups, GATE: Group(filled(state.groups[GATE], value))}
        answers.append(Answer(device, SAMPLES[device], groups))
    after = merged(half, state, exchange, *answers)
    for array in after.groups[GATE].values():
        np.testing.assert_allclose(array, (5 * 1 + 4 * 4) / 9, rtol=1e-6)


def test_without_answers_nothing_changes_but_the_round() -> None:
    half, state, exchange = begun(experts=2)
    after = merged(half, state, exchange)
    assert after.round == 1
    assert bits(after.groups) == bits(state.groups)
    assert after.params == state.params


def test_what_is_known_of_devices_is_kept_until_they_answer_again() -> None:
    half, state, exchange = begun(experts=2, **SGD)
    first = merged(half, state, exchange, made_answer(state, "device-00", (0.5, 0.5), 0.0))
    second = merged(half, first, exchange, made_answer(first, "device-01", (1.0, 0.0), 0.0))
    known = mixtures_of(second)
    assert known["device-00"].shares == (0.5, 0.5)
    assert known["device-01"].kept == (0,)


# -- hostile answers ----------------------------------------------------------------------------


def test_shares_a_little_above_one_cannot_overfill_the_mean() -> None:
    half, state, exchange = begun(experts=2, **SGD)
    answers = [made_answer(state, d, (1.0008, 0.0), 1.0, n) for d, n in SAMPLES.items()]
    players = Players()
    for answer in answers:
        assert half.reject_reason(exchange, answer, players.trainer.model) == ""
    after = merged(half, state, exchange, *answers)
    assert moved(state, after, 0) == pytest.approx(1.0, abs=1e-6)


def test_a_device_weighs_no_more_than_it_announced() -> None:
    half, state, exchange = begun(experts=2, **SGD)
    after = merged(
        half, state, exchange,
        made_answer(state, "device-00", (1.0, 0.0), 1.0, 10**9),
        made_answer(state, "device-03", (1.0, 0.0), -1.0, 4),
    )  # fmt: skip
    assert moved(state, after, 0) == pytest.approx((5 - 4) / 9, abs=1e-6)


@pytest.mark.parametrize("samples", [1, 2**20, 2**28, 2**29, 2**35, MAX_TOTAL_WEIGHT])
def test_weights_of_any_fleet_can_be_summed(samples: int) -> None:
    bits_of = share_bits(samples)
    assert 0 <= bits_of <= 8
    assert samples << bits_of <= MAX_TOTAL_WEIGHT
    half, state, _ = begun(experts=2)
    ExpertSums(half.settings, state, {"device-00": samples})


# -- reports ------------------------------------------------------------------------------------


def test_divergence_is_that_of_equation_16() -> None:
    half, state, exchange = begun(experts=2, divergence=True, **SGD)
    answers = [
        made_answer(state, "device-00", (1.0, 0.0), 1.0, 5),
        made_answer(state, "device-01", (0.5, 0.5), -1.0, 9),
    ]
    table = half.view(merged(half, state, exchange, *answers))[0]
    divergence = [row.cells[2] for row in table.rows]
    assert [column.name for column in table.columns][2] == "divergence"
    p, q = 5 / 9.5, 4.5 / 9.5
    opposite = 2 * p * q  # 0.5 (1 - (-1)) for both orders, for each of four tensors
    assert divergence[0] == pytest.approx(len(state.groups[role(0)]) * opposite, abs=1e-4)
    assert divergence[1] == pytest.approx(0.0, abs=1e-4)
    assert len(half.view(state)[0].columns) == 3, "not measured yet"


def test_the_tables_show_load_entropy_and_dead_experts() -> None:
    half, state, exchange = begun(experts=3, **SGD)
    load, shares, mixtures = half.view(state)
    assert [row.cells for row in load.rows] == [(None, 0, "")] * 3
    assert (load.series, load.warning, mixtures.rows) == ({"entropy": None}, "", ())
    assert (shares.key, [row.cells for row in shares.rows]) == ("label", [(0.3333,) * 3] * 3)
    answers = [made_answer(state, "device-00", (1.0, 0.0, 0.0), 0.0, 5),
               made_answer(state, "device-01", (0.5, 0.5, 0.0), 0.0, 9)]  # fmt: skip
    after = merged(half, state, exchange, *answers)
    load, _, mixtures = half.view(after)
    assert [row.cells[0] for row in load.rows] == pytest.approx([9.5 / 14, 4.5 / 14, 0], abs=1e-4)
    own = np.array([9.5, 4.5]) / 14
    assert load.series["entropy"] == pytest.approx(-(own * np.log(own)).sum(), abs=1e-4)
    assert [row.cells[1:] for row in load.rows] == [(2, ""), (0, ""), (0, "dead")]
    assert load.warning == "dead: e2"
    assert [row.key for row in mixtures.rows] == ["device-00", "device-01"]
    assert mixtures.rows[1].cells == (9, 1, 0.5, 0.5, 0.0, "e0 e1")
    (remark,) = half.remarks(state, exchange, after)
    assert remark.text == "round 1: hardly any device uses expert 2"
    assert half.remarks(after, exchange, after) == ()


def test_the_mixture_is_asked_for_by_name_and_shape() -> None:
    _, state, exchange = begun(experts=3)
    roles = exchange.reply_roles
    assert {name for name, each in roles.items() if each.optional} == {role(k) for k in range(3)}
    shares = TensorSpec("float32", (3,))
    assert roles[MIXTURE].tensors == {"raw": shares, "kept": shares}
    assert roles[TABLE].nbytes == state.groups[TABLE][PHI].nbytes
    one = begun(experts=1)[2].reply_roles
    assert not one[role(0)].optional
    assert TABLE not in one

"""The device's half of a mixture of experts: what it trains, sends, keeps, and tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.experts.expert_device_half import BIAS, FITTED, KNOWN, OWN
from edgefed.algorithms.experts.expert_records import GATE, MIXTURE, PHI, TABLE, role
from edgefed.algorithms.experts.fedmoe import FedMoe
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.device_side import (
    DeviceTask,
    DeviceView,
    EvalJob,
    PredictorEvalJob,
    TrainedEvalJob,
)
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.config.recipes.recipe import ModelSection
from edgefed.errors import DataError
from edgefed.learn.base.types import Array, Job, Samples, Score, Trained
from edgefed.learn.modeling.model_building import build
from edgefed.learn.objectives import expert_mixture as names
from edgefed.learn.training.trainer import Trainer
from tests.algorithms.moe_play import FORCED, moe, with_table
from tests.algorithms.play import Players, bits
from tests.run_fixture import CLASSES, samples

K, WIDTH, DEVICE = 3, 3, "device-01"


def task(
    half: FedMoe, players: Players, state: State | None = None, *, name: str = "fit", **changes: Any
) -> tuple[DeviceTask, DeviceView]:
    """Return a device's task in a state, and what the device has."""
    here = state or players.start(half)
    planned = half.plan(here, players.roster, 1)
    if name == "evaluate":
        planned = half.evaluation(here, players.roster, 1)
    assert isinstance(planned, Exchange)
    (question,) = [each for each in planned.questions if each.device == DEVICE]
    return players.task(planned, question), replace(players.view(DEVICE), **changes)


def prepared(half: FedMoe, players: Players, state: State | None = None, **changes: Any) -> Job:
    work = half.prepare(*task(half, players, state, **changes))
    assert isinstance(work, Job)
    return work


def trained(half: FedMoe, players: Players, state: State | None = None, **changes: Any) -> Answer:
    given, view = task(half, players, state, **changes)
    result = players.trainer.train(prepared(half, players, state, **changes), view.train)
    return half.answer(given, view, result)


def table(*columns: float) -> Array:
    """Return a table whose every row has these logits."""
    return np.tile(np.asarray(columns, np.float32), (CLASSES, 1))


# -- training -----------------------------------------------------------------------------------


def test_an_answer_holds_experts_table_and_shares_and_the_gate_stays_here() -> None:
    answer = trained(moe(experts=K), Players())
    assert set(answer.groups) == {*map(role, range(K)), TABLE, MIXTURE}
    assert set(answer.private) == {OWN}
    gate = answer.private[OWN]
    assert {name: array.shape for name, array in gate.items()} == {
        "weight": (WIDTH, K), "bias": (K,), "shares": (K,), "kept": (K,),
    }  # fmt: skip
    assert gate["weight"].any()
    for name in ("raw", "kept"):
        shares = answer.groups[MIXTURE].arrays[name]
        assert shares.dtype == np.float32
        assert shares.sum() == pytest.approx(1, abs=1e-6)


def test_training_goes_on_from_the_gate_that_the_device_keeps() -> None:
    half, players = moe(experts=K), Players()
    given, view = task(half, players)
    kept = {"weight": np.full((WIDTH, K), 0.5, np.float32), "bias": np.arange(K, dtype=np.float32)}
    job = half.prepare(given, replace(view, private={OWN: kept}))
    assert isinstance(job, Job)
    assert bits(job.variables[names.GATE_WEIGHT]) == bits(kept["weight"])
    assert bits(job.variables[names.GATE_BIAS]) == bits(kept["bias"])
    first = half.prepare(given, view)
    assert isinstance(first, Job)
    assert not first.variables[names.GATE_WEIGHT].any()


def test_pruned_experts_have_a_change_of_exactly_zero_and_are_not_sent() -> None:
    half, players = moe(experts=K, prune=0.5), Players()
    state = with_table(players.start(half), table(1.0, -4.0, 1.0))  # 0.3 % of an equal share
    given, view = task(half, players, state)
    job = half.prepare(given, view)
    assert isinstance(job, Job)
    result = players.trainer.train(job, view.train)
    for name in players.trainer.model.parameter_names:
        own = names.expert_name(1, name)
        assert bits(result.variables[own]) == bits(state.groups[role(1)][name])
        other = names.expert_name(2, name)
        assert bits(result.variables[other]) != bits(state.groups[role(2)][name])
    answer = half.answer(given, view, result)
    assert set(answer.groups) == {role(0), role(2), TABLE, MIXTURE}
    assert answer.groups[MIXTURE].arrays["kept"][1] == 0
    assert answer.groups[MIXTURE].arrays["raw"][1] > 0
    assert answer.private[OWN]["kept"].tolist() == [0, 2]


def test_an_expert_that_was_not_sent_is_not_used_whatever_its_share() -> None:
    half, players = moe(experts=K, most_experts=1), Players()
    answer = trained(half, players)
    (used,) = [name for name in answer.groups if name.startswith("expert-")]
    kept = answer.groups[MIXTURE].arrays["kept"]
    assert kept.tolist() == [float(role(k) == used) for k in range(K)]
    assert answer.groups[MIXTURE].arrays["raw"].min() > 0.1


def test_a_share_that_a_float32_cannot_hold_is_no_use() -> None:
    half, players = moe(experts=K), Players()
    state = with_table(players.start(half), table(FORCED, -FORCED, FORCED))
    answer = trained(half, players, state)
    assert set(answer.groups) == {role(0), role(2), TABLE, MIXTURE}
    planned = players.planned(half, state)
    sent = replace(answer, device=DEVICE)
    assert half.reject_reason(planned, sent, players.trainer.model) == ""


def test_a_device_condition_keeps_its_shares_and_sends_no_table() -> None:
    half, players = moe(experts=K, condition="device"), Players()
    state = players.start(half)
    assert TABLE not in state.groups
    answer = trained(half, players, state)
    assert set(answer.groups) == {*map(role, range(K)), MIXTURE}
    shares = answer.private[OWN]["shares"]
    assert bits(shares) == bits(answer.groups[MIXTURE].arrays["raw"])
    assert np.ptp(shares) > 0.01, "they have moved away from equal ones"
    again = prepared(half, players, state, private=answer.private)
    assert bits(again.variables[names.SHARES]) == bits(shares)


def test_gates_that_are_averaged_are_sent() -> None:
    half, players = moe(experts=K, gates="averaged"), Players()
    state = players.start(half)
    gate = {"weight": np.full((WIDTH, K), 0.5, np.float32), "bias": np.ones(K, np.float32)}
    state = replace(state, groups={**state.groups, GATE: gate})
    answer = trained(half, players, state)
    for name, change in answer.groups[GATE].arrays.items():
        assert change.any()
        np.testing.assert_allclose(answer.private[OWN][name], gate[name] + change, atol=1e-6)
    # The next task's gate counts, not what the device has of an earlier one.
    job = prepared(half, players, state, private=answer.private)
    assert bits(job.variables[names.GATE_WEIGHT]) == bits(gate["weight"])


@pytest.mark.parametrize("count", [1, K])
def test_a_personal_bias_is_trained_and_kept_and_never_sent(count: int) -> None:
    half, players = moe(experts=count, personal_bias=True), Players()
    answer = trained(half, players)
    bias = answer.private[BIAS]["bias"]
    assert bias.shape == (CLASSES,)
    assert bias.any()
    assert set(answer.groups) == {*map(role, range(count)), TABLE, MIXTURE}
    job = prepared(half, players, private=answer.private)
    assert bits(job.variables[names.PERSONAL_BIAS]) == bits(bias)


def test_one_expert_trains_nothing_but_the_model() -> None:
    half, players = moe(experts=1), Players()
    given, view = task(half, players)
    job = half.prepare(given, view)
    assert isinstance(job, Job)
    assert job.variables == {}
    answer = half.answer(given, view, players.trainer.train(job, view.train))
    assert set(answer.groups) == {role(0), MIXTURE}
    assert answer.private == {}


def test_soft_targets_count_as_shares_of_labels() -> None:
    half, players = moe(experts=K), Players()
    hard = samples(9, 4)
    soft = Samples(hard.inputs, np.eye(CLASSES, dtype=np.float32)[hard.targets])
    one, other = (trained(half, players, train=each) for each in (hard, soft))
    for group in (TABLE, MIXTURE, role(1)):
        for name, array in one.groups[group].arrays.items():
            np.testing.assert_allclose(other.groups[group].arrays[name], array, atol=1e-6)


# -- a column -----------------------------------------------------------------------------------


def column(values: list[int] | None, name: str = "rotation") -> Samples:
    plain = samples(6, 3)
    given = {} if values is None else {name: np.array(values, np.int64)}
    return Samples(plain.inputs, plain.targets, given)


ROTATION: dict[str, Any] = {"condition": "rotation", "condition_values": 4}


def test_shares_follow_the_column() -> None:
    half, players = moe(experts=K, **ROTATION), Players()
    state = players.start(half)
    assert state.groups[TABLE][PHI].shape == (4, K)
    logits = np.zeros((4, K), np.float32)
    logits[0, 0] = logits[1, 1] = 5.0
    state = with_table(state, logits)
    job = prepared(half, players, state, train=column([0, 0, 0, 1, 1, 3]))
    np.testing.assert_allclose(job.extra[names.FREQUENCIES], [1 / 2, 1 / 3, 0, 1 / 6], rtol=1e-6)
    assert job.extra[names.CONDITIONS].tolist() == [0, 0, 0, 1, 1, 3]
    change = trained(half, players, state, train=column([0, 0, 0, 1, 1, 3])).groups[TABLE]
    assert change.arrays[PHI][0].any()
    assert not change.arrays[PHI][2].any(), "no sample has that rotation"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (column(None),
         "The samples of this device have no column 'rotation', which the run's experts are"
         " conditioned on; columns: none."),
        (column([0] * 6, "site"),
         "The samples of this device have no column 'rotation', which the run's experts are"
         " conditioned on; columns: site."),
        (column([0, 1, 2, 3, 4, 0]),
         "Column 'rotation' of this device has values from 0 to 4, but the run has 4 of them,"
         " from 0."),
        (column([0, 1, 2, 3, -1, 0]),
         "Column 'rotation' of this device has values from -1 to 3, but the run has 4 of them,"
         " from 0."),
    ],
)  # fmt: skip
def test_a_device_without_the_column_says_so(given: Samples, said: str) -> None:
    half, players = moe(experts=K, **ROTATION), Players()
    for name in ("fit", "evaluate"):
        with pytest.raises(DataError) as caught:
            seen, view = task(half, players, name=name, train=given)
            if name == "fit":
                half.prepare(seen, view)
            else:
                players.do(half.eval_job(seen, view), view)
        assert caught.value.message == said
        assert caught.value.code == "data.column"
        assert caught.value.hint


# -- what a device keeps ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("private", "said"),
    [
        ({OWN: {"weight": np.zeros((WIDTH, 5), np.float32), "bias": np.zeros(5, np.float32)}},
         "The gate that this device keeps is of (3, 5), and the task needs (3, 3): it is of other"
         " experts or another model."),
        ({OWN: {"weight": np.zeros((7, K), np.float32), "bias": np.zeros(K, np.float32)}},
         "The gate that this device keeps is of (7, 3), and the task needs (3, 3): it is of other"
         " experts or another model."),
        ({BIAS: {"bias": np.zeros(9, np.float32)}},
         "The bias that this device keeps is of (9,), and the task needs (3,): it is of other"
         " experts or another model."),
    ],
)  # fmt: skip
def test_private_state_of_other_experts_or_another_model_is_refused(
    private: Any, said: str
) -> None:
    half, players = moe(experts=K, personal_bias=True), Players()
    with pytest.raises(DataError) as caught:
        trained(half, players, private=private)
    assert caught.value.message == said
    assert caught.value.code == "algorithm.private_state"
    assert caught.value.hint == "start a new run"


# -- the test -----------------------------------------------------------------------------------


def scored(half: FedMoe, players: Players, state: State, **changes: Any) -> tuple[str, Score]:
    given, view = task(half, players, state, name="evaluate", **changes)
    test = half.eval_job(given, view)
    found = players.do(test, view)
    assert isinstance(found, Score)
    return test.mode, found


def test_a_device_that_has_trained_tests_with_its_gate() -> None:
    half, players = moe(experts=K), Players()
    answer = trained(half, players)
    state = players.start(half)
    given, view = task(half, players, state, name="evaluate", private=answer.private)
    test = half.eval_job(given, view)
    assert isinstance(test, PredictorEvalJob)
    assert test.mode == KNOWN
    other = {**answer.private[OWN], "bias": np.array([3, 0, 0], np.float32)}
    assert scored(half, players, state, private=answer.private) != scored(
        half, players, state, private={OWN: other}
    )


def test_a_device_that_has_not_fits_a_gate_for_the_test_alone() -> None:
    half, players = moe(experts=K, personal_bias=True), Players()
    state = with_table(players.start(half), table(1.0, 0.0, -1.0))
    given, view = task(half, players, state, name="evaluate")
    test = half.eval_job(given, view)
    assert isinstance(test, TrainedEvalJob)
    assert test.mode == FITTED
    result = players.trainer.train(test.job, view.train)
    assert set(result.variables) == {names.GATE_WEIGHT, names.GATE_BIAS, names.PERSONAL_BIAS}
    assert bits(result.weights) == bits(state.groups[role(0)]), "experts are frozen"
    assert result.variables[names.GATE_WEIGHT].any()
    assert scored(half, players, state)[0] == FITTED


def test_an_even_mixture_of_one_gate_predicts_by_the_mean_of_the_experts() -> None:
    half, players = moe(experts=K), Players()
    state = players.start(half)
    zero = {"weight": np.zeros((WIDTH, K), np.float32), "bias": np.zeros(K, np.float32)}
    _, found = scored(half, players, state, private={OWN: zero})
    view = players.view(DEVICE)
    each = [players.trainer.predict(state.groups[role(k)], view.test.inputs) for k in range(K)]
    powers = [np.exp(a.astype(np.float64)) for a in each]
    mean = sum(a / a.sum(1, keepdims=True) for a in powers) / K
    right = mean[np.arange(len(view.test)), view.test.targets]
    assert found.loss == pytest.approx(-np.log(right).mean(), rel=1e-6)


def test_one_expert_is_tested_as_a_plain_model() -> None:
    half, players = moe(experts=1), Players()
    given, view = task(half, players, name="evaluate")
    test = half.eval_job(given, view)
    assert isinstance(test, EvalJob)
    assert test.mode == ""


# -- other models -------------------------------------------------------------------------------


def test_tokens_train() -> None:
    section = ModelSection.model_validate({"name": "lstm", "hidden": 4, "embedding": 3})
    lstm = build(section, (5,), 6, 1)
    rng = np.random.default_rng(1)
    part = Samples(rng.integers(0, 6, (9, 5)), rng.integers(0, 6, 9))
    half = moe(experts=2)
    half.check_model(lstm)
    state = half.start(lstm.weights(), (), 1)
    players = Players(trainer=Trainer(lstm, "cpu"))
    exchange = players.planned(half, state)
    seen = players.task(exchange, exchange.questions[0])
    view = replace(players.view("device-00"), train=part)
    job = half.prepare(seen, view)
    assert isinstance(job, Job)
    result = players.trainer.train(job, part)
    assert isinstance(result, Trained)
    assert half.answer(seen, view, result).groups.keys() == {role(0), role(1), TABLE, MIXTURE}

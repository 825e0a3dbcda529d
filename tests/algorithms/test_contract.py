"""The contract of ``edgefed.algorithms.base``, for every registered algorithm."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from annotated_types import Ge, Gt, Le, Len, Lt, MaxLen
from pydantic import ValidationError

from edgefed.algorithms.answer import Answer
from edgefed.algorithms.base import State
from edgefed.algorithms.device_side import TrainedEvalJob
from edgefed.algorithms.exchange import Exchange, Finished
from edgefed.algorithms.fedma_records import LAYER
from edgefed.algorithms.mean_exchange import MEAN
from edgefed.algorithms.optional_interfaces import CompleteAlgorithm
from edgefed.algorithms.registry import algorithms, make
from edgefed.clock import SystemClock
from edgefed.config.recipe import Recipe
from edgefed.coordinator.new_run import create_run
from edgefed.coordinator.store import Store
from edgefed.data.types import no_samples
from edgefed.learn.training import ModelPredictions
from edgefed.samples import Samples
from tests.algorithms.play import Players, algorithm, asked, bits
from tests.run_fixture import CLASSES, SHAPE, samples

every = pytest.mark.parametrize("name", list(algorithms()))


def test_the_published_ones_are_registered() -> None:
    assert {"fedavg", "fedprox", "fedopt"} <= algorithms().keys()


@every
def test_it_says_what_it_is(name: str) -> None:
    kind = algorithms()[name]
    assert kind.name == name
    assert 10 < len(kind.summary) <= 80
    assert kind.paper


# -- settings -----------------------------------------------------------------------------------


@every
def test_settings_are_frozen_closed_and_described(name: str) -> None:
    settings = algorithms()[name].Settings
    made = settings()
    for field, info in settings.model_fields.items():
        assert info.description, f"{field} is not described"
        with pytest.raises(ValidationError, match="frozen"):
            setattr(made, field, getattr(made, field))
    with pytest.raises(ValidationError, match="Extra inputs"):
        settings.model_validate({"no_such_setting": 1})


@every
def test_numbers_among_the_settings_are_ranged(name: str) -> None:
    for field, info in algorithms()[name].Settings.model_fields.items():
        if info.annotation in (int, float):
            assert any(isinstance(each, (Ge, Gt, Le, Lt)) for each in info.metadata), field
        elif info.annotation is str:
            assert any(isinstance(each, (Len, MaxLen)) for each in info.metadata), field


@every
def test_settings_are_plain_values_that_a_task_can_carry(name: str) -> None:
    values = algorithms()[name].Settings().model_dump(mode="json")
    assert algorithms()[name].Settings.model_validate(json.loads(json.dumps(values)))


# -- a run --------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("rounds", [1, 3])
def test_a_run_is_finished_after_its_rounds(name: str, rounds: int) -> None:
    half, players = algorithm(name, rounds), Players()
    history = players.play(half)
    assert players.start(half).round == 0
    assert history[-1][0].round == rounds
    numbers = [exchange.round for _, exchange in history]
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(1, rounds + 1))
    last = history[-1][0]
    assert isinstance(half.plan(last, players.roster, 1), Finished)
    assert isinstance(half.plan(replace(last, round=rounds + 1), players.roster, 1), Finished)


@every
def test_exchanges_are_well_formed(name: str) -> None:
    for _, exchange in Players().play(algorithm(name)):
        devices = [question.device for question in exchange.questions]
        assert devices == sorted(set(devices))
        least = 0 if exchange.name == MEAN else 1  # nobody need share
        assert least <= exchange.quorum <= exchange.wanted <= len(devices)
        assert exchange.deadline > 0
        named = {blob for question in exchange.questions for blob in question.blobs.values()}
        assert named == exchange.payloads.keys()
        for question in exchange.questions:
            assert json.loads(json.dumps(dict(question.params))) == question.params
            assert question.samples == len(Players().part(question.device))


@every
def test_a_run_moves_the_weights_and_keeps_their_looks(name: str) -> None:
    half, players = algorithm(name), Players()
    first = players.trainer.model.weights()
    state = players.play(half)[-1][0]
    last = half.weights(state)
    players.trainer_for(half.model(state)).model.check(last)
    for key, array in first.items():
        assert last[key].dtype == array.dtype
        assert np.isfinite(last[key]).all()
    assert bits(last) != bits(first)


@every
def test_the_trained_thing_predicts_and_is_tested(name: str) -> None:
    half, players = algorithm(name), Players()
    state, _ = players.play(half)[-1]
    predict = half.predictor(state, ModelPredictions(players.trainer_for(half.model(state))))
    assert predict(samples(5, 1).inputs).shape == (5, CLASSES)
    exchange = half.evaluation(state, players.roster, 1)
    question = exchange.questions[0]
    view = players.view(question.device, half.model(state))
    test = half.eval_job(players.task(exchange, question), view)
    assert not isinstance(test, TrainedEvalJob)
    assert test.samples.targets.shape == (3,)


@every
def test_the_state_survives_the_disk_to_the_bit(name: str, tmp_path: Path) -> None:
    half, players = algorithm(name), Players()
    store = Store(tmp_path, durable=False)
    record = create_run(store, Recipe(), SystemClock())
    states = [players.start(half), *(state for state, _ in players.play(half))]
    for number, state in enumerate(states):
        store.commit(replace(record, exchanges=number), state, {})
        found = store.checkpoint(record.run)
        assert found is not None
        assert bits(found.state) == bits(state)
    store.close()


@every
def test_a_run_goes_on_from_the_disk_as_if_nothing_had_happened(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half, players = algorithm(name), Players()
    straight = players.play(half)
    store = Store(tmp_path, durable=False)
    record = create_run(store, Recipe(), SystemClock())
    forgetful = algorithm(name)
    merged = forgetful.merge

    def merge(state: State, exchange: Exchange, answers: Any) -> State:
        """Return the state as it comes back from the disk."""
        store.commit(record, merged(state, exchange, answers), {})
        found = store.checkpoint(record.run)
        assert found is not None
        return found.state

    monkeypatch.setattr(forgetful, "merge", merge)
    again = Players().play(forgetful)
    assert bits([state for state, _ in again]) == bits([state for state, _ in straight])
    store.close()


# -- merging ------------------------------------------------------------------------------------


@every
def test_merging_does_not_depend_on_the_order_of_answers(name: str) -> None:
    half, players = algorithm(name), Players()
    state = players.start(half)
    for number in range(2):
        planned = half.plan(state, players.roster, number)
        assert isinstance(planned, Exchange)
        answers = players.answers(half, planned)
        merged = [half.merge(state, asked(planned), order) for order in permutations(answers)]
        assert len(merged) == 24
        assert all(bits(each) == bits(merged[0]) for each in merged)
        state = merged[0]


@every
def test_merging_takes_answers_one_at_a_time(name: str) -> None:
    half, players = algorithm(name), Players()
    state, exchange = players.start(half), first_exchange(half, players)
    answers = players.answers(half, exchange)
    whole = half.merge(state, asked(exchange), answers)
    assert bits(half.merge(state, asked(exchange), iter(answers))) == bits(whole)


@every
def test_without_answers_the_weights_stay(name: str) -> None:
    half, players = algorithm(name), Players()
    state, exchange = players.play(half)[0]
    planned = half.plan(state, players.roster, 1)
    assert isinstance(planned, Exchange)
    after = half.merge(state, asked(planned), [])
    assert bits(half.weights(after)) == bits(half.weights(state))
    assert after.round >= state.round
    assert exchange.round == state.round + (exchange.name in (MEAN, LAYER))


@every
def test_some_answers_suffice(name: str) -> None:
    half = algorithm(name)
    players = Players(order=lambda answers: answers[1:3])
    assert players.play(half)[-1][0].round == 2


# -- purity -------------------------------------------------------------------------------------


def first_exchange(half: CompleteAlgorithm[Any], players: Players) -> Exchange:
    planned = half.plan(players.start(half), players.roster, 1)
    assert isinstance(planned, Exchange)
    return planned


def draws() -> tuple[object, ...]:
    """Return the state of every global generator."""
    kind, keys, *rest = np.random.get_state()
    return random.getstate(), kind, bits(keys), *rest, bytes(torch.get_rng_state().numpy())


@every
def test_the_same_inputs_give_the_same_outputs(name: str) -> None:
    once, again = Players(), Players()
    assert bits(once.play(algorithm(name))) == bits(again.play(algorithm(name)))
    assert bits(once.private) == bits(again.private)


@every
def test_nothing_given_is_changed_and_no_global_generator_is_drawn_from(name: str) -> None:
    half, players = algorithm(name), Players()
    before = draws()
    weights = players.trainer.model.weights()
    kept = bits(weights)
    half.check_model(players.trainer.model)
    state = half.start(weights, players.roster, 3)
    for number in range(2):
        kept_state = bits(state)
        planned = half.plan(state, players.roster, number)
        assert isinstance(planned, Exchange)
        kept_exchange = bits(planned)
        answers = [watched(half, players, planned, number) for number in range(4)]
        kept_answers = bits(answers)
        after = half.merge(state, asked(planned), answers)
        assert bits(state) == kept_state
        assert bits(planned) == kept_exchange
        assert bits(answers) == kept_answers
        state = after
    assert bits(weights) == kept
    assert draws() == before


def watched(
    half: CompleteAlgorithm[Any], players: Players, exchange: Exchange, number: int
) -> Answer:
    """Return a device's answer, having seen that it changed nothing that it was given."""
    question = exchange.questions[number]
    task = players.task(exchange, question)
    view = players.view(question.device, exchange.model)
    given = bits([task, view.train, view.test, view.private])
    answer = players.answer(half, exchange, question)
    assert bits([task, view.train, view.test, view.private]) == given
    return answer


@every
def test_another_seed_of_the_exchange_asks_a_cohort_of_its_own(name: str) -> None:
    recipe = Recipe.model_validate({"algorithm": {"name": name}, "rounds": {"cohort": 2}})
    half = make(recipe)
    players = Players(
        [Samples(no_samples(SHAPE).inputs, no_samples(SHAPE).targets), *Players().parts]
    )
    state = players.start(half)
    first = half.plan(state, players.roster, 1)
    if isinstance(first, Exchange) and first.name == MEAN:  # asks everybody
        state = half.merge(state, asked(first), [])
    cohorts = set()
    for seed in range(30):
        planned = half.plan(state, players.roster, seed)
        assert isinstance(planned, Exchange)
        cohorts.add(tuple(question.device for question in planned.questions))
    assert len(cohorts) == 6, "all pairs of the four devices that have samples"
    assert not any("device-00" in cohort for cohort in cohorts)

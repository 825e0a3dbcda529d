"""What holds for every registered algorithm beside its contract (``edgefed.testing.algorithms``).

``tests/extensions/test_contracts.py`` runs that one over the built-in algorithms.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from edgefed.algorithms.averaged_data.mean_exchange import MEAN
from edgefed.algorithms.composed.registry import algorithms, make
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.device_side import TrainedEvalJob
from edgefed.algorithms.interface.exchange import Exchange, Finished
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.algorithms.matched.fedma_records import LAYER
from edgefed.config.recipes.recipe import Recipe
from edgefed.data.base.types import no_samples
from edgefed.files.samples import Samples
from edgefed.testing.common import pure
from tests.algorithms.play import Players, algorithm, asked, bits
from tests.run_fixture import SHAPE

every = pytest.mark.parametrize("name", list(algorithms()))

ROUNDS = 3


@cache
def played(name: str) -> tuple[CompleteAlgorithm[Any], Players, list[tuple[State, Exchange]]]:
    """Return an algorithm, the devices, and each exchange of a run with the state after it."""
    half, players = algorithm(name, ROUNDS), Players()
    return half, players, players.play(half)


@every
def test_a_run_is_finished_after_its_rounds(name: str) -> None:
    half, players, history = played(name)
    assert players.start(half).round == 0
    numbers = [exchange.round for _, exchange in history]
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(1, ROUNDS + 1))
    first, last = history[0], history[-1][0]
    assert first[1].round == first[0].round + (first[1].name in (MEAN, LAYER))
    assert last.round == ROUNDS
    assert isinstance(half.plan(last, players.roster, 1), Finished)
    assert isinstance(half.plan(replace(last, round=ROUNDS + 1), players.roster, 1), Finished)
    assert bits(half.weights(last)) != bits(players.trainer.model.weights())
    for _, exchange in history:
        assert exchange.quorum >= (exchange.name != MEAN), "nobody need share averages"
        assert exchange.deadline > 0
        for question in exchange.questions:
            assert question.samples == len(players.part(question.device))


@every
def test_devices_are_tested_on_their_test_samples(name: str) -> None:
    half, players, history = played(name)
    state = history[-1][0]
    exchange = half.evaluation(state, players.roster, 1)
    question = exchange.questions[0]
    view = players.view(question.device, half.model(state))
    test = half.eval_job(players.task(exchange, question), view)
    assert not isinstance(test, TrainedEvalJob)
    assert test.samples.targets.shape == (3,)


@every
def test_merging_reads_answers_once(name: str) -> None:
    half, players = algorithm(name), Players()
    state = players.start(half)
    planned = players.planned(half, state)
    answers = players.answers(half, planned)
    whole = half.merge(state, asked(planned), answers)
    assert bits(half.merge(state, asked(planned), iter(answers))) == bits(whole)


@every
def test_some_answers_suffice(name: str) -> None:
    half = algorithm(name)
    players = Players(order=lambda answers: answers[1:3])
    assert players.play(half)[-1][0].round == 2


@every
def test_a_start_changes_nothing_and_draws_from_no_global_generator(name: str) -> None:
    half, players = algorithm(name), Players()
    weights = players.trainer.model.weights()
    with pure("start", {"the weights": weights}):
        half.check_model(players.trainer.model)
        half.start(weights, players.roster, 3)


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
        planned = players.planned(half, state, seed)
        cohorts.add(tuple(question.device for question in planned.questions))
    assert len(cohorts) == 6, "all pairs of the four devices that have samples"
    assert not any("device-00" in cohort for cohort in cohorts)

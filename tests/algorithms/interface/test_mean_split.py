"""Averaged data after a split: of hidden states in each round, of tokens once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edgefed.algorithms.averaged_data.mean_exchange import AVERAGED, MEAN
from edgefed.algorithms.interface.exchange import Finished
from edgefed.config.recipes.recipe import ModelSection
from edgefed.errors import RecipeError
from edgefed.files.samples import Samples
from edgefed.learn.modeling.model_building import build
from edgefed.learn.training.trainer import Trainer
from edgefed.sharing.policy import Policy, Withheld
from tests.algorithms.mean_play import after_sharing, half_of, stacked
from tests.algorithms.play import SIZES, Players, algorithm, asked, bits


def test_averages_of_hidden_states_are_exchanged_anew_in_each_round() -> None:
    half, players = half_of(rounds=3, split=1, packing="fp32"), Players()
    history = players.play(half)
    assert [exchange.name for _, exchange in history] == [MEAN, "fit"] * 3
    assert [exchange.round for _, exchange in history] == [1, 1, 2, 2, 3, 3]
    assert all(exchange.payloads.keys() >= {"weights"} for _, exchange in history)
    first, second = stacked(history[0][0]).inputs, stacked(history[2][0]).inputs
    assert first.shape == second.shape == (4, 3)
    assert not np.isin(first, second).any()


def test_hidden_averages_leave_only_a_device_whose_owner_allows_it() -> None:
    players = Players(policy=Policy(share_hidden=False))
    for split in (0, 1):
        half = half_of(split=split)
        exchange = players.planned(half, players.start(half))
        if split:
            with pytest.raises(Withheld, match="share_hidden = false"):
                players.answers(half, exchange)
        else:
            assert len(players.answers(half, exchange)) == 4


def test_the_ledger_says_which_averages_are_of_hidden_states() -> None:
    players = Players()
    for split in (0, 1):
        half = half_of(split=split)
        exchange = players.planned(half, players.start(half))
        releases = [answer.ledger[0] for answer in players.answers(half, exchange)]
        assert [release["hidden"] for release in releases] == [bool(split)] * 4


def test_hidden_averages_are_means_of_what_the_round_s_encoder_makes() -> None:
    half, players = half_of(split=1, packing="fp32"), Players()
    state = after_sharing(half, players)
    weights = players.trainer.model.weights()
    hidden = [players.trainer.encode(weights, part.inputs, 1) for part in players.parts]
    wanted = np.stack([each.mean(axis=0) for each in hidden])
    found = stacked(state).inputs
    order, theirs = np.lexsort(found.T), np.lexsort(wanted.T)
    np.testing.assert_allclose(found[order], wanted[theirs], rtol=1e-5, atol=1e-6)


def test_a_round_without_sharers_does_not_train_with_another_round_s_hidden_states() -> None:
    half, players = half_of(rounds=9, split=1), Players()
    state = replace(after_sharing(half, players), round=1)
    exchange = players.planned(half, state)
    assert exchange.name == MEAN
    state = half.merge(state, asked(exchange), [])
    assert AVERAGED not in state.groups
    assert players.planned(half, state).payloads.keys() == {"weights"}


def lstm() -> Trainer:
    section = ModelSection.model_validate({"name": "lstm", "hidden": 4, "embedding": 3})
    return Trainer(build(section, (5,), 6, 1), "cpu")


@pytest.mark.parametrize("name", ["localmix", "naivemix", "fedmix", "globalmix"])
def test_tokens_are_mixed_behind_the_embedding_and_averaged_once(name: str) -> None:
    rng = np.random.default_rng(1)
    parts = [Samples(rng.integers(0, 6, (size, 5)), rng.integers(0, 6, size)) for size in SIZES]
    players = Players(parts, lstm())
    half = algorithm(name, 2, split=1)
    half.check_model(players.trainer.model)
    first = players.trainer.model.weights()
    state = half.start(first, players.roster, 1)
    names = []
    for number in range(9):
        exchange = half.plan(state, players.roster, number)
        if isinstance(exchange, Finished):
            break
        names.append(exchange.name)
        answers = players.answers(half, exchange)
        assert not any(
            half.reject_reason(exchange, each, players.trainer.model) for each in answers
        )
        state = half.merge(state, asked(exchange), answers)
    assert names == ["fit", "fit"] if name == "localmix" else [MEAN, "fit", "fit"]
    assert bits(half.weights(state)) != bits(first)
    with pytest.raises(RecipeError, match="tokens, which have no mean"):
        algorithm(name, 2).check_model(players.trainer.model)

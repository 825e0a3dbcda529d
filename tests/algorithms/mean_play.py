"""Common code of the tests of averaged data: play the exchange of averages."""

from __future__ import annotations

from typing import Any

import pytest

from edgefed.algorithms.averaged_data.mean_exchange import AVERAGED, MEAN, MeanExchange
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.sharing.packing import unpack
from tests.algorithms.play import SIZES, Players, algorithm, asked

mixing = pytest.mark.parametrize("name", ["naivemix", "fedmix"])
DEVICES = [f"device-{number:02d}" for number in range(len(SIZES))]


def half_of(name: str = "fedmix", rounds: int = 2, **settings: Any) -> CompleteAlgorithm[Any]:
    half = algorithm(name, rounds, **settings)
    assert [type(part) for part in half.parts()] == [MeanExchange]
    return half


def after_sharing(half: CompleteAlgorithm[Any], players: Players) -> State:
    """Return the state after the exchange of averages."""
    state = players.start(half)
    exchange = players.planned(half, state)
    assert exchange.name == MEAN
    return half.merge(state, asked(exchange), players.answers(half, exchange))


def stacked(state: State) -> Any:
    return unpack(dict(state.groups[AVERAGED]))


def first_answer(half: CompleteAlgorithm[Any], players: Players) -> tuple[Exchange, Answer]:
    exchange = players.planned(half, players.start(half))
    return exchange, players.answers(half, exchange)[0]

"""Late answers of buffered rounds in FedAvg's merge: the step in float64, its bits, its privacy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange, Question, staleness_factor
from edgefed.algorithms.interface.member import Member
from edgefed.config.recipes.recipe import Recipe
from edgefed.learn.base.types import Array, Tensors
from edgefed.sharing.random_words import generator_words

WEIGHTS: Tensors = {
    "w": np.array([[1.0, -2.0], [0.5, 4.0]], np.float32),
    "n": np.array(3, np.int64),
}


def half(**tables: Any) -> Any:
    noise = generator_words(np.random.default_rng(1))
    recipe = Recipe.model_validate({"rounds": {"mode": "buffered", "buffer": 2}, **tables})
    return make(recipe, randomness=lambda number, purpose: noise)


def started(algorithm: Any, weights: Tensors) -> State:
    roster = (Member("device-0", 5),)
    state: State = algorithm.start(weights, roster, 1)
    return state


def exchange(samples: Sequence[int], staleness: Sequence[int]) -> Exchange:
    questions = tuple(
        Question(f"device-{k}", count, staleness=late)
        for k, (count, late) in enumerate(zip(samples, staleness, strict=True))
    )
    return Exchange("fit", 4, questions, {}, len(questions), 1, 60.0)


def answers(samples: Sequence[int], deltas: Sequence[Array]) -> list[Answer]:
    metrics = {"steps": 1.0, "loss": 1.0, "within": 1.0}
    return [
        Answer(
            f"device-{k}",
            count,
            {"delta": Group({"w": delta, "n": np.array(2, np.int64)})},
            metrics,
        )
        for k, (count, delta) in enumerate(zip(samples, deltas, strict=True))
    ]


def deltas(count: int) -> list[Array]:
    rng = np.random.default_rng(2)
    return [rng.standard_normal((2, 2)).astype(np.float32) for _ in range(count)]


def test_factors_are_the_papers_in_256ths() -> None:
    assert [staleness_factor(late) for late in (0, 1, 3, 1000)] == [1.0, 181 / 256, 0.5, 8 / 256]


@pytest.mark.parametrize("weighting", ["examples", "uniform"])
def test_the_step_is_that_of_the_paper_in_float64(weighting: str) -> None:
    samples, late, moved = (5, 1, 9), (0, 2, 7), deltas(3)
    algorithm = half(algorithm={"name": "fedavg", "weighting": weighting})
    after = algorithm.merge(
        started(algorithm, WEIGHTS), exchange(samples, late), answers(samples, moved)
    )
    weights = samples if weighting == "examples" else (1, 1, 1)
    factors = [round(256 / math.sqrt(1 + s)) / 256 for s in late]
    shares = np.array(weights) * factors / sum(weights)
    step = np.tensordot(shares, np.array(moved, np.float64), 1)
    assert after.groups["weights"]["w"] == pytest.approx(WEIGHTS["w"] + step, abs=1e-6)
    assert after.round == 4
    assert after.groups["weights"]["n"] == 3 + round(2 * float(shares.sum()))


def test_one_late_answer_alone_makes_a_shorter_step() -> None:
    algorithm, moved = half(), deltas(1)
    after = algorithm.merge(started(algorithm, WEIGHTS), exchange((5,), (3,)), answers((5,), moved))
    assert after.groups["weights"]["w"] == pytest.approx(WEIGHTS["w"] + moved[0] / 2, abs=1e-6)


@given(st.lists(st.tuples(st.integers(1, 4000), st.integers(0, 20)), min_size=1, max_size=6))
def test_any_order_of_answers_leads_to_the_same_bits(parts: list[tuple[int, int]]) -> None:
    samples, late = [n for n, _ in parts], [s for _, s in parts]
    algorithm, moved = half(), deltas(len(parts))
    state, asked, given_ = (
        started(algorithm, WEIGHTS),
        exchange(samples, late),
        answers(samples, moved),
    )
    one = algorithm.merge(state, asked, given_).groups["weights"]["w"]
    other = algorithm.merge(state, asked, given_[::-1]).groups["weights"]["w"]
    assert one.tobytes() == other.tobytes()


def test_answers_in_time_are_merged_to_the_bits_of_a_synchronous_round() -> None:
    algorithm, moved, samples = half(), deltas(3), (5, 1, 9)
    asked, given_ = exchange(samples, (0, 0, 0)), answers(samples, moved)
    state = started(algorithm, WEIGHTS)
    together = make(Recipe())
    one = algorithm.merge(state, asked, given_).groups["weights"]["w"]
    other = together.merge(state, asked, given_).groups["weights"]["w"]
    assert one.tobytes() == other.tobytes()


def test_central_noise_covers_late_updates_that_are_shortened() -> None:
    """The mean over K devices of a(s) times the clipped delta; old ones are never longer."""
    privacy = {"mechanism": "central", "clip": 4.0, "noise_multiplier": 0.01}
    algorithm, moved = half(privacy=privacy), deltas(2)
    weights = {"w": WEIGHTS["w"]}
    given_ = [
        replace(each, groups={"delta": Group({"w": delta})})
        for each, delta in zip(answers((5, 1), moved), moved, strict=True)
    ]
    after = algorithm.merge(started(algorithm, weights), exchange((5, 1), (3, 0)), given_)
    expected = WEIGHTS["w"] + (moved[0] / 2 + moved[1]) / 2
    assert after.groups["weights"]["w"] == pytest.approx(expected, abs=0.1)  # five deviations


@pytest.mark.parametrize("name", ["scaffold", "fedma", "fedmoe", "fednova", "qfedavg", "ifca"])
def test_a_method_that_merges_one_cohort_says_why_it_is_not_buffered(name: str) -> None:
    with pytest.raises(Exception, match="Buffered rounds do not go with") as caught:
        half(algorithm={"name": name})
    assert getattr(caught.value, "code", "") == "rounds.buffered"

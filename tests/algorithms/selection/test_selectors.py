"""Each selector by itself: its formula against another computation, and its probabilities."""

from __future__ import annotations

import math
from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefed.algorithms.selection.base import Candidate, draw_by_weight
from edgefed.algorithms.selection.oort import Oort, OortSettings
from edgefed.algorithms.selection.power_of_choice import PowerOfChoice, PowerOfChoiceSettings
from edgefed.algorithms.selection.registry import SELECTORS
from edgefed.seeds import generator

candidate_lists = st.lists(
    st.builds(
        Candidate,
        st.just(""),
        st.integers(1, 50),
        asked=st.integers(0, 5),
        last=st.integers(0, 9),
        loss=st.none() | st.floats(0, 10),
        seconds=st.none() | st.floats(0, 100),
    ),
    min_size=2,
    max_size=30,
).map(lambda listed: [_named(entry, number) for number, entry in enumerate(listed)])


def _named(entry: Candidate, number: int) -> Candidate:
    return Candidate(
        f"d{number:02}", entry.samples, entry.asked, entry.last, entry.loss, entry.seconds
    )


def chosen(name: str, candidates: list[Candidate], count: int, number: int, seed: int) -> list[str]:
    kind = SELECTORS[name]
    order = kind(kind.Settings()).order(candidates, count, number, generator(seed, "test"))
    return list(order)


@pytest.mark.parametrize("name", SELECTORS)
@given(candidates=candidate_lists, part=st.floats(0, 1), number=st.integers(1, 99))
def test_an_order_has_each_device_at_most_once_and_follows_from_the_seed(
    name: str, candidates: list[Candidate], part: float, number: int
) -> None:
    count = max(1, int(part * (len(candidates) - 1)))
    order = chosen(name, candidates, count, number, 7)
    assert len(order) == len(set(order)) >= count
    assert set(order) <= {entry.device for entry in candidates}
    assert order == chosen(name, candidates, count, number, 7)


@pytest.mark.parametrize("name", [name for name in SELECTORS if name != "round-robin"])
def test_another_seed_makes_another_choice(name: str) -> None:
    candidates = [Candidate(f"d{number}", 5) for number in range(12)]
    assert len({tuple(chosen(name, candidates, 6, 1, seed)[:6]) for seed in range(9)}) > 1


def test_a_weighted_draw_has_the_probabilities_of_one_device_after_another() -> None:
    weights, draws = [1.0, 2.0, 5.0], 20_000
    rng = np.random.default_rng(1)
    counts = Counter(tuple(draw_by_weight(weights, rng)) for _ in range(draws))
    for order in permutations(range(3)):
        first, second, _ = (weights[index] for index in order)
        expected = first / 8 * second / (8 - first)
        assert counts[order] / draws == pytest.approx(expected, abs=0.012)


def test_by_samples_a_device_is_drawn_first_as_often_as_its_share_of_the_samples() -> None:
    candidates = [Candidate("a", 1), Candidate("b", 3)]
    first = Counter(chosen("samples", candidates, 1, 1, seed)[0] for seed in range(4000))
    assert first["b"] / 4000 == pytest.approx(0.75, abs=0.03)


def test_at_random_samples_do_not_matter() -> None:
    candidates = [Candidate("a", 1), Candidate("b", 300)]
    first = Counter(chosen("random", candidates, 1, 1, seed)[0] for seed in range(4000))
    assert first["b"] / 4000 == pytest.approx(0.5, abs=0.03)


def test_in_turn_the_device_that_waited_longest_is_first() -> None:
    candidates = [Candidate(f"d{last}", 1, last=last) for last in (4, 2, 0, 3)]
    assert chosen("round-robin", candidates, 2, 5, 1) == ["d0", "d2", "d3", "d4"]
    ties = [Candidate(f"d{number}", 1) for number in range(6)]
    assert len({tuple(chosen("round-robin", ties, 2, 1, seed)) for seed in range(9)}) > 1


# -- power of choice ------------------------------------------------------------------------------


def test_of_the_drawn_devices_those_with_the_highest_loss_are_asked() -> None:
    """Compared with the definition: draw d by samples, then take the m highest losses."""
    rng = np.random.default_rng(3)
    losses = [0.5, 2.0, 1.0, 4.0, 3.0, 0.1, 2.5, 1.5]
    candidates = [
        Candidate(f"d{number}", int(rng.integers(1, 9)), loss=loss)
        for number, loss in enumerate(losses)
    ]
    selector = PowerOfChoice(PowerOfChoiceSettings(candidates=2.5))
    for seed in range(20):
        order = selector.order(candidates, 2, 3, generator(seed))
        weights = [entry.samples for entry in candidates]
        drawn = draw_by_weight(weights, generator(seed))[:5]
        best = sorted(drawn, key=lambda index: losses[index], reverse=True)[:2]
        assert list(order[:2]) == [f"d{index}" for index in best]


def test_a_device_without_a_loss_comes_before_all_others() -> None:
    candidates = [Candidate("a", 1, loss=9.0), Candidate("b", 1), Candidate("c", 1, loss=5.0)]
    selector = PowerOfChoice(PowerOfChoiceSettings(candidates=3))
    assert list(selector.order(candidates, 1, 2, generator(1))) == ["b", "a", "c"]


def test_one_candidate_for_each_place_is_the_draw_by_samples() -> None:
    candidates = [Candidate(f"d{n}", n + 1, loss=float(n)) for n in range(9)]
    selector = PowerOfChoice(PowerOfChoiceSettings(candidates=1))
    for seed in range(9):
        first = selector.order(candidates, 4, 1, generator(seed))[:4]
        assert set(first) == set(chosen_by_samples(candidates, seed)[:4])


def chosen_by_samples(candidates: list[Candidate], seed: int) -> list[str]:
    kind = SELECTORS["samples"]
    return list(kind(kind.Settings()).order(candidates, 4, 1, generator(seed)))


# -- Oort -----------------------------------------------------------------------------------------


def test_the_utility_is_that_of_the_paper() -> None:
    """By hand: n F = 20, 6, 12, cut at the second of three, 12; T is the median, 4 s."""
    candidates = [
        Candidate("a", 10, asked=1, last=3, loss=2.0, seconds=8.0),
        Candidate("b", 3, asked=1, last=1, loss=2.0, seconds=4.0),
        Candidate("c", 12, asked=2, last=4, loss=1.0, seconds=1.0),
        Candidate("d", 99),
    ]
    utilities = Oort(OortSettings()).utilities(candidates, 5)
    assert utilities.keys() == {"a", "b", "c"}
    grows = 0.1 * math.log(5)
    assert utilities["a"] == pytest.approx((1 + math.sqrt(grows / 3)) * (4 / 8) ** 2)
    assert utilities["b"] == pytest.approx(6 / 12 + math.sqrt(grows / 1))
    assert utilities["c"] == pytest.approx(1 + math.sqrt(grows / 4))
    tolerant = Oort(OortSettings(alpha=0)).utilities(candidates, 5)
    assert tolerant["a"] == pytest.approx(1 + math.sqrt(grows / 3))
    hasty = Oort(OortSettings(alpha=1, percentile=25)).utilities(candidates, 5)
    assert hasty["b"] == pytest.approx(utilities["b"] * 2.5 / 4), "T is between 1 and 4 seconds"


def test_no_device_leads_by_its_loss_alone() -> None:
    candidates = [Candidate(f"d{n}", 5, asked=1, last=1, loss=1.0 + n / 10) for n in range(8)]
    liar = Candidate("x", 5, asked=1, last=1, loss=1e30)
    utilities = Oort(OortSettings()).utilities([*candidates, liar], 2)
    assert utilities["x"] == utilities["d7"]
    negative = [Candidate(f"n{n}", 5, asked=1, last=1, loss=-1.0) for n in range(3)]
    assert all(math.isfinite(each) for each in Oort(OortSettings()).utilities(negative, 2).values())


def test_known_devices_are_drawn_in_proportion_to_their_utility() -> None:
    settings = OortSettings(exploration=0, least_exploration=0, alpha=1, percentile=1)
    slow = Candidate("slow", 1, asked=1, last=1, loss=1.0, seconds=1.04)
    fast = Candidate("fast", 1, asked=1, last=1, loss=1.0, seconds=1.0)
    first = Counter(Oort(settings).order([fast, slow], 1, 1, generator(s))[0] for s in range(4000))
    assert first["slow"] / 4000 == pytest.approx(1 / 2.04, abs=0.025)
    one_slower = [fast, Candidate("slow", 1, asked=1, last=1, loss=1.0, seconds=1.2)]
    assert {Oort(settings).order(one_slower, 1, 1, generator(s))[0] for s in range(99)} == {"fast"}


def test_the_share_of_unknown_devices_shrinks_to_its_least() -> None:
    oort = Oort(OortSettings(exploration=0.8, exploration_decay=0.5, least_exploration=0.15))
    assert [oort.exploration(number) for number in (1, 2, 3, 4)] == [0.8, 0.4, 0.2, 0.15]
    known = [Candidate(f"k{n}", 1, asked=1, last=1, loss=1.0) for n in range(10)]
    unknown = [Candidate(f"u{n}", 1) for n in range(10)]
    for number, explored in ((1, 8), (2, 4), (4, 2)):  # 0.15 of 10 is rounded to an even number
        order = oort.order([*known, *unknown], 10, number, generator(5))
        assert sum(device.startswith("u") for device in order[:10]) == explored


def test_known_devices_are_drawn_from_those_near_the_best() -> None:
    settings = OortSettings(exploration=0, least_exploration=0)
    losses = [10.0, 9.9, 9.8, 9.5, 9.0, 2.0]
    candidates = [
        Candidate(f"d{n}", 1, asked=1, last=400, loss=loss) for n, loss in enumerate(losses)
    ]
    drawn = Counter[str]()
    for seed in range(200):
        drawn.update(Oort(settings).order(candidates, 2, 2, generator(seed))[:2])
    assert set(drawn) == {"d0", "d1", "d2", "d3"}, "9.0 is below 0.95 of the second, 9.9"


def test_an_unmeasured_device_is_taken_where_known_ones_are_too_few() -> None:
    settings = OortSettings(exploration=0, least_exploration=0)
    failed = Candidate("a", 1, asked=3, last=2)
    candidates = [failed, Candidate("b", 1), Candidate("c", 1, asked=1, last=1, loss=1.0)]
    for seed in range(9):
        order = Oort(settings).order(candidates, 2, 3, generator(seed))
        assert list(order) == ["c", "b", "a"], "one that was asked and did not answer comes last"

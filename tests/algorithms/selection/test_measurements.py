"""What a run knows of its devices, from the rows of its rounds, and the ranks that follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.interface.cohort_sampling import draw
from edgefed.algorithms.interface.member import Member
from edgefed.algorithms.selection.base import Candidate, Selector, SelectorSettings
from edgefed.algorithms.selection.measurements import Measured, Measurements, measured_row
from edgefed.algorithms.selection.registry import SELECTORS
from edgefed.algorithms.selection.selection import Selection
from edgefed.config.recipes.recipe import Recipe
from edgefed.testing.selectors import check_selector

ROSTER = tuple(Member(f"d{number}", 5) for number in range(5))


def selection(measurements: Measurements, **table: Any) -> Selection:
    recipe = Recipe.model_validate({"selection": table, "rounds": {"cohort": 4}})
    return Selection(recipe, measurements)


def asked(devices: Sequence[str], number: int) -> dict[str, Any]:
    return {"round": number, "measured": {device: [1.0, None, 3] for device in devices}}


def test_a_device_that_does_not_answer_keeps_its_last_measurement() -> None:
    known = Measurements()
    known.add({"round": 1, "measured": measured_row(["a", "b"], {"a": Measured(0.5, 4.0, 8)})})
    known.add({"round": 4, "measured": {"a": []}})
    known.add({"round": 5})
    (first, second) = known.candidates((Member("a", 2), Member("b", 3), Member("c", 0)))
    assert first == Candidate("a", 2, asked=2, last=4, loss=0.5, seconds=4.0)
    assert second == Candidate("b", 3, asked=1, last=1)
    table = known.table()
    assert table is not None
    assert table.texts() == [
        ("a", "2", "4", "0.5000", "4", "8"),
        ("b", "1", "1", "", "", ""),
    ]
    assert Measurements().table() is None
    paced = known.paced((Member("a", 2), Member("b", 3)))
    assert [member.pace for member in paced] == [0.5, None]


@pytest.mark.parametrize(
    ("answer", "pace"),
    [([1.0, 0.0, 8], 0.0), ([1.0, None, 8], None), ([1.0, 4.0, 0], None), ([1.0, 4.0, -3], None)],
)
def test_the_pace_needs_seconds_and_steps(answer: list[Any], pace: float | None) -> None:
    known = Measurements()
    known.begin([{"round": 1, "measured": {"a": answer}}])
    assert known.paced((Member("a", 2),))[0].pace == pace


def test_a_new_beginning_forgets_what_was_before() -> None:
    known = Measurements()
    known.add(asked(["a"], 1))
    known.begin([asked(["b"], 2)])
    assert (known.of("a").asked, known.of("b").asked) == (0, 1)


def test_devices_that_rest_are_taken_evenly_where_the_others_are_too_few() -> None:
    known, counts = Measurements(), Counter[str]()
    chosen = selection(known, rest=1)
    for number in range(1, 501):
        cohort = draw(chosen.ranked(ROSTER, number, number), chosen._rounds, 1)
        devices = [member.device for member in cohort.members]
        known.add(asked(devices, number))
        counts.update(devices)
    assert min(counts.values()) > 350, "400 each"


def test_a_device_that_was_never_asked_does_not_rest() -> None:
    known = Measurements()
    known.add(asked(["d0", "d1", "d2"], 1))
    first = selection(known, rest=99).first(ROSTER, 2, 2, 1)
    assert set(first) == {"d3", "d4"}


def test_devices_without_samples_are_not_counted() -> None:
    roster = (*ROSTER[:4], Member("empty", 0))
    ranked = selection(Measurements(), name="round-robin").ranked(roster, 1, 1)
    assert {member.rank for member in ranked} == {None}, "all four that can be asked are"


def test_the_choice_follows_from_seed_and_round(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    class Seen(Selector[SelectorSettings]):
        name = "seen"
        summary = "notes how it is called"

        def order(
            self, candidates: Sequence[Candidate], count: int, number: int, rng: np.random.Generator
        ) -> Sequence[str]:
            seen.append((count, number, float(rng.random())))
            return [candidate.device for candidate in candidates]

    monkeypatch.setitem(SELECTORS, "seen", Seen)
    chosen = selection(Measurements(), name="seen")
    for number, seed in ((3, 1), (3, 1), (4, 2)):
        chosen.ranked(ROSTER, number, seed)
    assert seen[0] == seen[1] != seen[2]
    assert [call[:2] for call in seen] == [(4, 3), (4, 3), (4, 4)]
    selection(Measurements(), name="seen", rest=9).ranked(ROSTER, 1, 1)
    assert len(seen) == 4, "a device that was never asked needs no rest"


class Wrong(Selector[SelectorSettings]):
    """Asks the first candidates, in one of several wrong ways."""

    name = "wrong"
    summary = "a selector that breaks the contract"
    calls = 0

    def order(
        self, candidates: Sequence[Candidate], count: int, number: int, rng: np.random.Generator
    ) -> Sequence[str]:
        return self.wrong([candidate.device for candidate in candidates], count)

    def wrong(self, devices: list[str], count: int) -> list[str]:
        return devices


class Twice(Wrong):
    def wrong(self, devices: list[str], count: int) -> list[str]:
        return [devices[0], *devices]


class Few(Wrong):
    def wrong(self, devices: list[str], count: int) -> list[str]:
        return devices[: count - 1]


class Strange(Wrong):
    def wrong(self, devices: list[str], count: int) -> list[str]:
        return [*devices, "somebody"]


class Fickle(Wrong):
    def wrong(self, devices: list[str], count: int) -> list[str]:
        type(self).calls += 1
        return devices if self.calls % 2 else devices[::-1]


class Global(Wrong):
    def wrong(self, devices: list[str], count: int) -> list[str]:
        np.random.rand()
        return devices


class Failing(Wrong):
    def wrong(self, devices: list[str], count: int) -> list[str]:
        raise KeyError(count)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (Twice, "a device is there twice"),
        (Few, "are asked"),
        (Strange, "not a candidate"),
        (Fickle, "gives another order"),
        (Global, "global generator"),
        (Failing, "raises KeyError"),
    ],
)
def test_the_contract_finds(kind: type[Wrong], why: str) -> None:
    check_selector(Wrong)
    with pytest.raises(AssertionError, match=why):
        check_selector(kind)


@pytest.mark.parametrize("name", SELECTORS)
def test_the_selectors_keep_the_contract(name: str) -> None:
    check_selector(SELECTORS[name])

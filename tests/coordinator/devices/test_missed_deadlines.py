"""A device that lets deadlines pass while it is connected is left out of ever more rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from edgefed.algorithms.interface.member import Member
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.devices.missed_deadlines import after_exchange, least_roster, left_out
from edgefed.coordinator.exchanges.fleet import Delivered, Fleet
from edgefed.coordinator.storage.stored_runs import OpenExchange
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.exchanges.test_resume import Fuse, PowerCut
from tests.coordinator.fleets import TamperedFleet
from tests.run_fixture import World, recipe, shards

MUTE = "device-01"


class Stalled(TamperedFleet):
    """A fleet in which some devices let every deadline pass, or those of the first exchanges."""

    def __init__(self, inner: Fleet, mute: tuple[str, ...] = (MUTE,), until: int = 99) -> None:
        super().__init__(inner, self._tamper)
        self._mute = mute
        self._until = until

    def _is_mute(self, device: str, exchange: OpenExchange) -> bool:
        return device in self._mute and exchange.index < self._until

    def _tamper(self, exchange: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        return (each for each in replies if not self._is_mute(each.reply.device, exchange))

    def missed_deadline(self, exchange: OpenExchange) -> frozenset[str]:
        asked = (task.device for task in exchange.tasks)
        return frozenset(device for device in asked if self._is_mute(device, exchange))


def rounds_of(fleet: TamperedFleet, device: str, name: str = "fit") -> list[int]:
    """Return the rounds in which a device was asked."""
    asked = (each for each in fleet.asked if each.name == name)
    return [each.round for each in asked if device in {task.device for task in each.tasks}]


def plan(**sections: Any) -> Recipe:
    return recipe(**{"evaluation": {"every": 0}, **sections, "rounds": {"count": 12}})


def test_it_is_left_out_for_one_two_four_up_to_sixteen_rounds() -> None:
    rows: Mapping[str, tuple[int, int]] = {}
    spans = []
    for number in (1, 2, 4, 7, 12, 21, 38, 55):
        rows = after_exchange(rows, number, {MUTE}, {"other"})
        spans.append(max(0, rows[MUTE][1] - number))
    assert spans == [0, 1, 2, 4, 8, 16, 16, 16]
    assert after_exchange(rows, 72, (), {MUTE}) == {}
    assert after_exchange(rows, 72, (), {"other"}) == rows


def members(count: int) -> list[Member]:
    return [Member(f"device-{place:02d}", 5) for place in range(count)]


def test_as_many_are_left_out_as_the_run_can_do_without() -> None:
    rows = {"device-00": (2, 9), "device-01": (4, 9), "device-02": (3, 8), "gone": (5, 9)}
    assert list(left_out(rows, 8, members(5), 1)) == ["device-00", "device-01", "device-02"]
    assert list(left_out(rows, 9, members(5), 1)) == ["device-00", "device-01"]
    assert list(left_out(rows, 10, members(5), 1)) == []
    # Those that missed the fewest deadlines are asked all the same.
    assert list(left_out(rows, 8, members(5), 3)) == ["device-01", "device-02"]
    assert list(left_out(rows, 8, members(5), 4)) == ["device-01"]
    assert list(left_out(rows, 8, members(5), 5)) == []
    told = left_out(rows, 9, members(5), 4)["device-01"]
    assert told == "it missed 4 deadlines while connected, and is left out up to round 9"


@pytest.mark.parametrize(
    ("sections", "least"),
    [
        ({}, 1),
        ({"rounds": {"quorum": 1.0}}, 1),
        ({"rounds": {"cohort": 6, "quorum": 0.9}}, 6),
        ({"merging": {"rule": "krum", "malicious": 2}}, 7),
        ({"secure_aggregation": {"enabled": True}}, 2),
        ({"secure_aggregation": {"enabled": True, "threshold": 7}}, 7),
        ({"secure_aggregation": {"enabled": True, "colluders": 3}}, 5),
        ({"secure_aggregation": {"enabled": True}, "rounds": {"min_devices": 8}}, 8),
        ({"rounds": {"min_devices": 8}}, 1),
    ],
)
def test_a_run_keeps_the_devices_that_it_needs(sections: dict[str, Any], least: int) -> None:
    assert least_roster(recipe(**sections)) == least


def test_a_run_keeps_the_population_that_hides_a_cohort() -> None:
    private = {"mechanism": "central", "noise_multiplier": 1.0, "population": 6}
    cohort = {"cohort": 2, "quorum": 0.5}
    assert least_roster(recipe(privacy=private, rounds=cohort)) == 6


def test_a_run_asks_a_silent_device_ever_less_and_says_so(world: MakeWorld) -> None:
    here = world(plan(), shards((5, 9, 6, 4)))
    fleet = Stalled(here.devices)
    assert here.engine(fleet).run().status == "finished"
    assert rounds_of(fleet, MUTE) == [1, 2, 4, 7, 12]
    assert rounds_of(fleet, "device-00") == list(range(1, 13))
    told = [each["excluded"] for each in here.seen("device", device=MUTE) if "excluded" in each]
    assert told[:3] == [
        "it missed 2 deadlines while connected, and is left out up to round 3",
        "",
        "it missed 3 deadlines while connected, and is left out up to round 6",
    ]


def test_a_good_answer_ends_it(world: MakeWorld) -> None:
    here = world(plan(), shards((5, 9, 6, 4)))
    fleet = Stalled(here.devices, until=4)
    here.engine(fleet).run()
    assert rounds_of(fleet, MUTE) == [1, 2, 4, *range(7, 13)]
    assert here.record.silent == {}


def test_missed_tests_count_too(world: MakeWorld) -> None:
    here = world(plan(evaluation={"on": "devices"}), shards((5, 9, 6, 4), tested=3))
    fleet = Stalled(here.devices)
    here.engine(fleet).run()
    assert rounds_of(fleet, MUTE, "evaluate") == [1]
    assert rounds_of(fleet, MUTE) == [1, 3, 6, 11]


def test_a_run_goes_on_with_one_that_answers(world: MakeWorld) -> None:
    """Three of four say nothing, so that the first round misses its quorum twice."""
    here = world(plan(), shards((5, 9, 6, 4)))
    fleet = Stalled(here.devices, ("device-00", "device-01", "device-02"))
    assert here.engine(fleet).run().status == "finished"
    assert [len(each.tasks) for each in fleet.asked][:3] == [4, 4, 1]


def test_a_run_never_stops_for_it(world: MakeWorld) -> None:
    """The quorum of the cohort is three, so that one of two silent devices is asked again."""
    chosen = recipe(rounds={"count": 3, "cohort": 5, "quorum": 0.6})
    here = world(chosen, shards((5, 9, 6, 4, 7)))
    fleet = Stalled(here.devices, ("device-01", "device-02", "device-03"), until=2)
    assert here.engine(fleet).run().status == "finished"
    assert [len(each.tasks) for each in fleet.asked][:3] == [5, 5, 3]


def test_a_run_that_is_killed_asks_the_same_devices(world: MakeWorld) -> None:
    """At any look at the clock, before and after each write."""
    chosen = recipe(rounds={"count": 4}, evaluation={"on": "devices"})
    parts = shards((5, 9, 6, 4), tested=3)

    def cut(here: World, fuse: Fuse) -> None:
        here.clock.on_read = fuse
        try:
            here.engine(Stalled(here.devices)).run()
        finally:
            here.clock.on_read = lambda: None

    whole = world(chosen, parts)
    whole.engine(Stalled(whole.devices)).run()
    cuts = 0
    for passes in range(0, 400, 83):
        here = world(chosen, parts)
        try:
            cut(here, Fuse(passes))
        except PowerCut:
            cuts += 1
            here.engine(Stalled(here.devices)).run()
        assert here.record.silent == whole.record.silent
        assert here.record.weights_digest == whole.record.weights_digest, passes
    assert cuts > 2

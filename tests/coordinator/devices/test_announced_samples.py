"""Devices that announce far more samples than the others are not asked until a release."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from edgefed.algorithms.interface.member import Member, Roster
from edgefed.config.recipes.checks_section import ChecksSection
from edgefed.coordinator.devices.announced_samples import SampleExclusions
from edgefed.coordinator.devices.device_registry import DeviceRegistry
from edgefed.coordinator.devices.trust_scores import TrustScores
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.process.clock import SystemClock
from edgefed.wire.messages import Birth
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.fleets import Tamper, TamperedFleet, forged, silent, told
from tests.run_fixture import recipe, shards

FACTOR = 10.0
LIAR = "liar"
SECOND = "device-01"


class Announcing(TamperedFleet):
    """A fleet in which a device announces another number of samples."""

    samples = 2**40

    def roster(self) -> Roster:
        return tuple(
            replace(each, samples=self.samples) if each.device == SECOND else each
            for each in super().roster()
        )


def fleet(*samples: int, held_out: int = 0) -> list[Member]:
    """Return a device for each number of samples; the last one lies."""
    names = [f"device-{place}" for place in range(len(samples) - 1)] + [LIAR]
    pairs = zip(names, samples, strict=True)
    return [Member(name, count, held_out=held_out) for name, count in pairs]


@pytest.fixture
def scores(tmp_path: Path) -> Iterator[TrustScores]:
    made = TrustScores(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("samples", "excluded"),
    [
        ((100, 100, 2**40), True),
        ((100, 100, 1000), False),  # ten times the median
        ((100, 100, 1001), True),
        ((1, 100, 1001), True),  # the middle of the three is 100
        ((100, 1001), False),  # two have no median
        ((0, 100, 1001), False),  # nor have two with data
        ((2**40, 2**40, 2**40), False),
    ],
)
def test_a_device_far_above_the_median_is_excluded(
    samples: tuple[int, ...], excluded: bool
) -> None:
    assert (LIAR in SampleExclusions().exclude(fleet(*samples), FACTOR)) == excluded
    assert SampleExclusions().exclude(fleet(*samples), 0) == {}


def test_the_reason_has_the_numbers() -> None:
    assert SampleExclusions().exclude(fleet(90, 100, 2**40), FACTOR) == {
        LIAR: "it announces 1099511627776 samples, more than 10 times the fleet's median;"
        " edgefed device release liar"
    }


def test_samples_to_test_on_are_compared_too() -> None:
    known = [*fleet(9, 9, 9, held_out=4)[:2], Member(LIAR, 9, held_out=41)]
    (why,) = SampleExclusions().exclude(known, FACTOR).values()
    assert why.startswith(
        "it announces 41 held-out samples, more than 10 times the fleet's median;"
    )


def test_a_release_holds_until_twice_as_much_is_announced(scores: TrustScores) -> None:
    announced = scores.announced
    assert not announced.release(LIAR)
    announced.exclude(fleet(100, 100, 5000), FACTOR)
    assert announced.release(LIAR)
    assert not announced.release(LIAR), "it is released already"
    assert announced.exclude(fleet(100, 100, 10_000), FACTOR) == {}
    assert LIAR in announced.exclude(fleet(100, 100, 10_001), FACTOR)
    assert announced.release(LIAR)
    assert announced.exclude(fleet(100, 100, 20_002), FACTOR) == {}


def test_a_device_that_announces_less_takes_part_again(scores: TrustScores) -> None:
    announced = scores.announced
    announced.exclude(fleet(100, 100, 5000), FACTOR)
    assert announced.exclude(fleet(100, 100, 1000), FACTOR) == {}
    assert not announced.release(LIAR), "nothing is left to release"


def test_releases_exclusions_and_medians_outlast_a_restart(tmp_path: Path) -> None:
    before = TrustScores(tmp_path)
    before.announced.exclude(fleet(100, 100, 5000), FACTOR)
    before.close()
    before = TrustScores(tmp_path)
    alone = fleet(100, 100, 5000)[1:]
    assert LIAR in before.announced.exclude(alone, FACTOR), "the others have not joined yet"
    assert before.announced.release(LIAR)
    before.close()
    after = TrustScores(tmp_path)
    assert after.announced.exclude(fleet(100, 100, 5000), FACTOR) == {}
    after.close()


def test_a_median_that_moves_changes_no_reason() -> None:
    announced = SampleExclusions()
    before = announced.exclude(fleet(100, 100, 5000), FACTOR)
    assert before and announced.exclude(fleet(100, 110, 120, 5000), FACTOR) == before


@pytest.mark.parametrize("order", ["forget", "remove"])
def test_the_median_goes_with_the_devices_that_are_removed(tmp_path: Path, order: str) -> None:
    scores = TrustScores(tmp_path)
    registry = DeviceRegistry(EventJournal("lab", SystemClock()), SystemClock(), scores)
    for member in (known := fleet(100, 100, 100, 5000)):
        birth = Birth(session="1" * 8, status="online", samples=member.samples)
        registry.take_birth(member.device, birth)
        if member.device != LIAR:
            registry.take_birth(member.device, birth.model_copy(update={"status": "lost"}))
    checks = ChecksSection()
    assert LIAR in scores.exclusions(registry.known(), checks)
    for member in known[:2]:
        assert LIAR in scores.exclusions(registry.known()[-1:], checks)
        getattr(registry, order)(member.device)
    for _ in range(2):
        assert scores.exclusions(registry.known(), checks) == {}, "two devices have no median"
        scores.close()
        scores = TrustScores(tmp_path)
    scores.close()


def test_a_device_that_a_check_names_can_be_released(tmp_path: Path) -> None:
    scores = TrustScores(tmp_path)
    roster, checks = tuple(fleet(100, 100, 5000)), ChecksSection()
    (why,) = scores.exclusions(roster, checks).values()
    assert why.endswith("edgefed device release liar")
    lenient = checks.model_copy(update={"announced_median_factor": 90.0})
    assert scores.exclusions(roster, lenient) == {}, "it forgets nobody whom others exclude"
    assert scores.announced.release(LIAR)
    assert scores.exclusions(roster, checks) == {}
    scores.close()


def asked(fleet: TamperedFleet) -> list[int]:
    """Return how many devices each exchange asked."""
    return [len(each.tasks) for each in fleet.asked]


def test_no_weight_is_clipped(world: MakeWorld) -> None:
    """An excluded device is as one that is away; one that is admitted has its whole weight."""

    def end(kind: type[TamperedFleet], tamper: Tamper | None = None, factor: float = FACTOR) -> str:
        here = world(recipe(checks={"announced_median_factor": factor}), shards((5, 9, 6, 4)))
        return here.engine(kind(here.devices, tamper), trust=TrustScores()).run().weights_digest

    plain = end(TamperedFleet)
    assert end(Announcing) == end(TamperedFleet, silent(SECOND)) != plain
    assert end(Announcing, factor=0) == plain
    claimed = forged(SECOND, told(samples=2**40))
    assert end(Announcing, claimed, factor=0) not in {plain, end(Announcing)}


def test_a_run_does_not_ask_who_announces_too_much_until_its_release(world: MakeWorld) -> None:
    trust = TrustScores()
    here = world(parts=shards((5, 9, 6, 4)))
    fleet = Announcing(here.devices)
    assert here.engine(fleet, trust=trust).run().status == "finished"
    assert asked(fleet) == [3, 3, 3]
    why = "it announces 1099511627776 samples, more than 10 times the fleet's median"
    (told,) = [each for each in here.seen("device", device=SECOND) if "excluded" in each]
    assert told["excluded"] == f"{why}; edgefed device release {SECOND}"
    assert trust.announced.release(SECOND)
    again = world(parts=shards((5, 9, 6, 4)))
    fleet = Announcing(again.devices)
    again.engine(fleet, trust=trust).run()
    assert asked(fleet) == [4, 4, 4]


@pytest.mark.parametrize(("factor", "samples", "count"), [(0, 2**40, 4), (2, 12, 3), (2, 11, 4)])
def test_the_factor_is_a_setting_of_the_recipe(
    world: MakeWorld, factor: float, samples: int, count: int
) -> None:
    here = world(recipe(checks={"announced_median_factor": factor}), shards((5, 9, 6, 4)))
    fleet = Announcing(here.devices)
    fleet.samples = samples
    here.engine(fleet).run()
    assert asked(fleet) == [count] * 3


def test_a_quarantined_device_is_not_in_the_median(world: MakeWorld) -> None:
    trust = TrustScores()
    trust.quarantine("device-00", "operator.ann", "now")
    here = world(parts=shards((5, 9, 6, 4)))
    fleet = Announcing(here.devices)
    fleet.samples = 60  # 10 times 6, the median without the quarantined one; 5.5 with it
    here.engine(fleet, trust=trust).run()
    told = [each["excluded"] for each in here.seen("device", device=SECOND) if "excluded" in each]
    assert told == []


def test_simulations_do_not_compare_announcements(world: MakeWorld) -> None:
    here = world(parts=shards((2, 90, 3, 4)))
    assert here.engine(here.devices).run().status == "finished"
    assert not [each for each in here.seen("device") if "excluded" in each]
    assert all(row["replies"] == 4 for row in here.rows)

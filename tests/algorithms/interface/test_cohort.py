"""The sampled cohort: its devices, its size, and its quorum."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.algorithms.interface.cohort_sampling import draw, draw_testers
from edgefed.algorithms.interface.member import Member, Roster
from edgefed.config.recipes.recipe import RoundsSection

shares = st.integers(1, 100).map(lambda percent: percent / 100)
sections = st.builds(
    RoundsSection,
    cohort=st.integers(0, 40),
    over_selection=st.integers(0, 400).map(lambda percent: percent / 100),
    quorum=shares,
)
rosters = st.lists(st.integers(0, 3), max_size=40).map(
    lambda sizes: tuple(Member(f"device-{k:02d}", size) for k, size in enumerate(sizes))
)


def full(count: int) -> Roster:
    return tuple(Member(f"device-{k:03d}", 1) for k in range(count))


def percent(share: float) -> Fraction:
    """Return the share that the recipe's author wrote."""
    return Fraction(round(share * 100), 100)


@settings(max_examples=100, deadline=None)
@given(roster=rosters, section=sections, seed=st.integers(0, 2**62))
def test_the_terms_follow_from_the_recipe(
    roster: Roster, section: RoundsSection, seed: int
) -> None:
    cohort = draw(roster, section, seed)
    able = [member for member in roster if member.samples > 0]
    aim = section.cohort or len(able)
    assert cohort.wanted == min(aim, len(able))
    over = math.ceil(cohort.wanted * percent(section.over_selection))
    assert len(cohort.members) == min(len(able), cohort.wanted + over)
    assert cohort.quorum == max(1, math.ceil(aim * percent(section.quorum)))
    assert cohort.quorum <= max(1, aim)


@settings(max_examples=100, deadline=None)
@given(roster=rosters, section=sections, seed=st.integers(0, 2**62))
def test_members_are_distinct_sorted_and_have_samples(
    roster: Roster, section: RoundsSection, seed: int
) -> None:
    members = draw(roster, section, seed).members
    assert set(members) <= set(roster)
    assert [member.device for member in members] == sorted({m.device for m in members})
    assert all(member.samples > 0 for member in members)
    assert draw(roster, section, seed).members == members


@pytest.mark.parametrize(
    ("cohort", "over", "asked"), [(10, 0.1, 11), (100, 0.07, 107), (30, 0.1, 33), (3, 0.01, 4)]
)
def test_no_device_is_asked_for_a_last_bit(cohort: int, over: float, asked: int) -> None:
    """10 · (1 + 0.1) is 11.000000000000002 as floats go."""
    section = RoundsSection(cohort=cohort, over_selection=over)
    assert len(draw(full(200), section, 1).members) == asked


@pytest.mark.parametrize(
    ("cohort", "share", "quorum"), [(100, 0.07, 7), (50, 0.14, 7), (10, 0.51, 6), (1, 0.01, 1)]
)
def test_no_answer_is_required_for_a_last_bit(cohort: int, share: float, quorum: int) -> None:
    section = RoundsSection(cohort=cohort, quorum=share)
    assert draw(full(200), section, 1).quorum == quorum


def test_a_fleet_that_has_shrunk_below_the_quorum_is_noticed() -> None:
    cohort = draw(full(3), RoundsSection(cohort=10, quorum=0.5), 1)
    assert (cohort.wanted, len(cohort.members), cohort.quorum) == (3, 3, 5)


def test_nobody_is_drawn_where_nobody_has_samples() -> None:
    cohort = draw((Member("device-00", 0),), RoundsSection(), 1)
    assert (cohort.members, cohort.wanted, cohort.quorum) == ((), 0, 1)


def test_every_device_is_drawn_alike() -> None:
    section = RoundsSection(cohort=3)
    counts = dict.fromkeys((member.device for member in full(10)), 0)
    for seed in range(1000):
        for member in draw(full(10), section, seed).members:
            counts[member.device] += 1
    # 1000 draws at 3 in 10: mean 300, standard deviation 14.5; the seeds are fixed.
    assert all(240 < count < 360 for count in counts.values()), counts


def test_a_seed_draws_the_same_cohort_in_every_release() -> None:
    names = [member.device for member in draw(full(10), RoundsSection(cohort=3), 7).members]
    assert names == ["device-005", "device-008", "device-009"]


@pytest.mark.parametrize(("tested", "asked"), [(None, 4), (0, 20), (7, 7), (99, 20)])
def test_a_test_may_ask_another_number_of_devices(tested: int | None, asked: int) -> None:
    section = RoundsSection(cohort=4, test_cohort=tested)
    cohort = draw_testers(full(20), section, seed=3)
    assert (len(cohort.members), cohort.wanted) == (asked, asked)
    if tested is None:
        assert cohort == draw(full(20), section, seed=3)

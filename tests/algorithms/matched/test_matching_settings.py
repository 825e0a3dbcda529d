"""The settings that PFNM and FedMA share, and how they set a layer's matching."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from pydantic import ValidationError

from edgefed.algorithms.matched.matching_settings import MatchingSettings
from edgefed.learn.matching.settings import MatchSettings


def test_the_defaults_are_those_of_the_matching_but_for_the_bound() -> None:
    made = MatchingSettings().match_settings(50)
    assert made == MatchSettings(most_atoms=100)


def test_every_setting_reaches_the_matching() -> None:
    given: dict[str, Any] = {
        "sigma": 0.5,
        "sigma0": 3.0,
        "gamma": 0.25,
        "sweeps": 2,
        "new_penalty": "none",
        "prior_factor": 1.5,
        "count_cap": 4,
        "growth_cap": 30,
        "average": "all",
    }
    made = MatchingSettings(**given, most_growth=1.5).match_settings(15)
    assert made == MatchSettings(**given, most_atoms=22)
    assert {each.name for each in fields(MatchSettings)} == {*given, "most_atoms"}


def test_no_bound_is_below_the_units_of_a_device() -> None:
    assert MatchingSettings(most_growth=1).most_atoms(3) == 3
    assert MatchingSettings(most_growth=1.1).most_atoms(9) == 9
    assert MatchingSettings(most_growth=1.15).most_atoms(100) == 115, "not 114.99…"


def test_the_reference_decides_all_but_variances_mass_and_sweeps() -> None:
    published = MatchSettings.reference(most_atoms=20, gamma=1.0)
    assert MatchingSettings(reference=True).match_settings(10) == published
    own = MatchingSettings(reference=True, sigma=0.1, sigma0=10.0, gamma=50.0, sweeps=1)
    made = own.match_settings(10)
    assert (made.sigma, made.sigma0, made.gamma, made.sweeps) == (0.1, 10.0, 50.0, 1)
    loud = MatchingSettings(
        reference=True, average="all", prior_factor=3, count_cap=2, growth_cap=5, new_penalty="none"
    )
    assert loud.match_settings(10) == published


@pytest.mark.parametrize(
    "wrong", [{"sigma": 0}, {"sigma0": "some"}, {"most_growth": 0.5}, {"gamma": -1}]
)
def test_values_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        MatchingSettings(**wrong)

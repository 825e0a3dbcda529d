"""``edgefed privacy plan``, refusals of budgets, and what ``run show`` tells of epsilon."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefed.sharing.update_accounting import Releases, epsilon_of
from tests.cli.commands import Told, edgefed


def plan(*sets: str, words: tuple[str, ...] = ()) -> Told:
    flags = [word for each in sets for word in ("--set", f"privacy.{each}")]
    return edgefed("privacy", "plan", "--set", "rounds.count=5", *flags, *words)


def test_a_plan_tells_noise_and_epsilon_of_the_whole_run() -> None:
    told = plan("mechanism=central", "noise_multiplier=3", words=("--json",))
    epsilon = epsilon_of([Releases(5, 3.0)], 1e-5)
    assert told.json == {
        "mechanism": "central",
        "noise_multiplier": 3.0,
        "clip": 1.0,
        "adaptive": False,
        "rounds": 5,
        "epsilon": epsilon,
        "delta": 1e-5,
        "budget": None,
        "neighbours": "replace-one device",
        "sampled": None,
        "population": None,
    }
    lines = plan("mechanism=central", "noise_multiplier=3").out
    assert f"epsilon           {epsilon:.4g} at delta 1e-05\n" in lines
    assert "differ in all data of one device" in lines


def test_a_plan_finds_the_multiplier_of_a_budget() -> None:
    found = plan("mechanism=central", "epsilon=2", words=("--json",)).json
    assert (found["sampled"], found["population"], found["budget"]) == (None, None, 2.0)
    assert epsilon_of([Releases(5, found["noise_multiplier"])], 1e-5) == found["epsilon"] <= 2.0
    assert epsilon_of([Releases(5, found["noise_multiplier"] * 0.99)], 1e-5) > 2.0


def test_a_plan_counts_a_secret_cohort() -> None:
    words = ("--set", "rounds.cohort=20", "--json")
    found = plan("mechanism=central", "noise_multiplier=2", "population=1000", words=words).json
    assert (found["sampled"], found["population"]) == (20, 1000)
    assert found["epsilon"] == epsilon_of([Releases(5, 2.0, 20, 1000)], 1e-5)


@pytest.mark.parametrize("command", ["plan", "simulation"])
def test_a_budget_that_cannot_be_met_is_refused_in_one_line(command: str, tmp_path: Path) -> None:
    sets = ("mechanism=central", "noise_multiplier=3", "epsilon=2")
    if command == "plan":
        told = plan(*sets)
    else:
        flags = [word for each in sets for word in ("--set", f"privacy.{each}")]
        told = edgefed("sim", "run", "--rounds", "5", *flags, state=tmp_path)
    told.failed(
        2, "privacy.budget", "5 rounds with noise multiplier 3", "noise_multiplier to at least"
    )


def test_a_recipe_without_privacy_has_no_plan() -> None:
    plan().failed(2, "privacy.none", "has no differential privacy")


def test_what_privacy_does_not_cover_is_refused() -> None:
    told = plan("mechanism=central", "noise_multiplier=3", words=("--algorithm", "fedmix"))
    told.failed(2, "privacy.algorithm", "fedmix also makes devices release data")

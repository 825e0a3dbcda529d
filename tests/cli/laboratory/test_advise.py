"""``edgefed advise``: over a real fleet, after a kill, and what users get wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgefed.advise.profile import read_profile, write_profile
from tests.advise.fleets import one_label_each
from tests.cli.commands import edgefed
from tests.cli.conftest import SmallFleet

pytest.importorskip("sklearn", reason="the digits are not installed")

SMALL = """name = "small"
[model]
name = "mlp"
hidden = [4]
[rounds]
count = 3
"""


def _words(folder: Path, *more: str) -> tuple[str, ...]:
    """Return the words of a race of three candidates with one seed."""
    recipe, profile = folder / "recipe.toml", folder / "profile.toml"
    recipe.write_text(SMALL)
    write_profile(one_label_each(), profile)
    out = ("--profile", str(profile), "--out", str(folder / "advice" / "small"))
    methods = ("--methods", "fedavg,fedopt", "--seeds", "1", "--minutes", "5")
    return ("advise", "race", str(recipe), *out, *methods, *more)


def _answer(text: str) -> Any:
    return {key: value for key, value in json.loads(text).items() if key != "folder"}


def test_a_race_without_all_results_goes_on_to_the_same_advice(tmp_path: Path) -> None:
    """That a kill leaves whole results only is in ``tests/simulator/sweep/test_sweep_kill.py``."""
    words, out = _words(tmp_path, "--json"), tmp_path / "advice" / "small"
    straight = edgefed(*words, state=tmp_path / "state")
    assert straight.code == 0, straight
    assert (out / "lock").read_text().startswith("edgefed advise race, process")
    (out / "advice.json").unlink()
    # The first is of the run that measures a round
    results = sorted((out / "results").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    for lost in results[2:]:
        lost.unlink()
    again = edgefed(*words, state=tmp_path / "state")
    assert (again.code, again.err.count("done before")) == (0, 1), again
    assert _answer(again.out) == _answer(straight.out)
    assert _answer((out / "advice.json").read_text()) == _answer(again.out)
    recipe = edgefed("config", "check", out / "recommended.toml")
    assert recipe.code == 0, recipe


def test_a_budget_that_is_too_small_says_what_would_do(tmp_path: Path) -> None:
    words = ("--minutes", "0.01", "--set", "rounds.count=500")
    told = edgefed(*_words(tmp_path), *words, state=tmp_path / "state")
    assert (told.code, told.out) == (2, "")
    assert "[advise.budget]" in told.err
    assert "A race of 3 candidates with 1 seed needs about" in told.err


def test_data_that_lack_a_class_cannot_stand_in(tmp_path: Path) -> None:
    words = _words(tmp_path)
    write_profile(one_label_each(11), tmp_path / "profile.toml")
    told = edgefed(*words, state=tmp_path / "state")
    cause = "The data have no sample of label 10, which the histograms name."
    assert (told.code, told.out) == (5, "")
    for part in ("[advise.failed]", cause, "--stand-in"):
        assert part in told.err


def test_an_address_of_ray_without_ray_is_refused(tmp_path: Path) -> None:
    words = _words(tmp_path, "--address", "192.0.2.1:6379")
    edgefed(*words, state=tmp_path).failed(2, "usage", "--on ray")


def test_without_a_broker_a_profile_is_asked_for(tmp_path: Path) -> None:
    nowhere = ("--broker", "mqtt://127.0.0.1:1", "--no-config")
    edgefed(*nowhere, "advise", "race", state=tmp_path).failed(3, "broker.unreachable")
    edgefed(*nowhere, "advise", state=tmp_path).failed(3, "broker.unreachable")


@pytest.mark.mosquitto
def test_advice_from_a_real_fleet_is_checked_against_its_run(
    fleet: SmallFleet, tmp_path: Path
) -> None:
    measured = fleet.begin("--rounds", "1")
    fleet.wait_for(measured, "finished")
    file = tmp_path / "profile.toml"
    told = fleet("advise", "profile", "--out", file, "--json")
    assert told.code == 0, told
    profile = read_profile(file)
    assert (profile.fleet, profile.run, len(profile.devices)) == ("small", measured, 2)
    assert all(d.samples == sum(d.labels) for d in profile.devices)
    assert all(d.seconds_per_sample for d in profile.devices)
    assert "label skew" in told.err
    out = tmp_path / "advice"
    words = ("--profile", file, "--out", out, "--seeds", "1", "--set", "rounds.count=2")
    race = fleet("advise", "race", fleet.recipe, *words, "--methods", "fedavg", "--json")
    assert race.code == 0, race
    assert race.json["recommended"] == "fedavg"
    assert race.json["rows"][0]["seconds"] > 0
    fleet("advise", "check", "--out", tmp_path).failed(5, "advise.none")
    fleet("advise", "check", measured, "--out", out).failed(2, "advise.not_followed")
    started = fleet("--quiet", "run", "start", out / "recommended.toml").out.strip()
    fleet.wait_for(started, "finished")
    compared = {row["name"]: row for row in fleet("advise", "check", "--out", out, "--json").json}
    # The same codecs and messages: a twin sends nearly the bytes of the fleet.
    assert abs(compared["bytes"]["error"]) < 0.2, compared
    assert json.loads((out / "checks.json").read_text()).keys() == {started}
    other = ("--out", tmp_path / "other", *words[:2], *words[4:])
    later = fleet("advise", "race", fleet.recipe, *other, "--methods", "fedavg")
    assert "1 earlier run by advice" in later.err, later

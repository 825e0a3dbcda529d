"""A twin has the profile's histograms and speeds; assumptions about unknown ones are said."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from edgefed.advise.candidates import CANDIDATES, candidate, entrants
from edgefed.advise.profile import Profile, Shared
from edgefed.advise.twin import make_twin
from edgefed.api.recipe_source import checked
from edgefed.config.recipes.recipe import Recipe
from edgefed.errors import UnknownNameError
from tests.advise.fleets import one_label_each


def _rows(file: str) -> list[list[str]]:
    with Path(file).open(newline="") as lines:
        return list(csv.reader(lines))


def test_a_twin_is_dealt_and_timed_as_the_profile_says(tmp_path: Path) -> None:
    profile = one_label_each(3, 20)
    away = tuple(device.model_copy(update={"absent": 0.3}) for device in profile.devices[:1])
    profile = profile.model_copy(update={"devices": (*away, *profile.devices[1:])})
    twin = make_twin(Recipe(), profile, tmp_path)
    assert (twin.tables["simulation"]["devices"], twin.timed, twin.notes) == (3, True, ())
    assert twin.tables["data"]["partition"] == "histograms"
    assert _rows(twin.tables["data"]["histograms"]) == [
        ["device", "0", "1", "2"],
        ["device-00", "20", "0", "0"],
        ["device-01", "0", "20", "0"],
        ["device-02", "0", "0", "20"],
    ]
    assert twin.tables["speeds"]["absent"] == 0.1
    assert _rows(twin.tables["speeds"]["file"])[1:] == [
        ["device-00", "0.01", "1000.0", ""],
        ["device-01", "0.02", "1000.0", ""],
        ["device-02", "0.03", "1000.0", ""],
    ]


def test_unknown_labels_and_speeds_are_assumed_and_said(tmp_path: Path) -> None:
    profile = one_label_each(3, 20)
    hidden = profile.devices[2].model_copy(update={"labels": (), "seconds_per_sample": None})
    some = profile.model_copy(update={"devices": (*profile.devices[:2], hidden)})
    twin = make_twin(Recipe(), some, tmp_path)
    *_, assumed = _rows(twin.tables["data"]["histograms"])
    assert sum(map(int, assumed[1:])) == 20
    assert twin.notes[0].startswith("1 of 3 devices do not share their labels")
    assert _rows(twin.tables["speeds"]["file"])[-1][1] == "0.015"  # the median of the others
    nothing = Profile(
        devices=tuple(
            device.model_copy(update={"labels": (), "seconds_per_sample": None})
            for device in profile.devices
        )
    )
    blind = make_twin(Recipe(), nothing, tmp_path, {"name": "digits", "partition": "iid"})
    assert (blind.tables["data"], blind.timed) == ({"name": "digits", "partition": "iid"}, False)
    assert "dealt by the recipe's partition iid" in blind.notes[0]
    assert blind.notes[1] == "No run has measured the devices: times are unknown."


def test_files_of_other_histograms_have_other_names(tmp_path: Path) -> None:
    one = make_twin(Recipe(), one_label_each(3, 20), tmp_path).tables["data"]["histograms"]
    other = make_twin(Recipe(), one_label_each(3, 21), tmp_path).tables["data"]["histograms"]
    assert one != other
    assert make_twin(Recipe(), one_label_each(3, 20), tmp_path).tables["data"]["histograms"] == one


@pytest.mark.parametrize("refuses", [(), ("means",), ("mixes",), ("means", "mixes")])
def test_what_owners_refuse_never_enters(tmp_path: Path, refuses: tuple[Shared, ...]) -> None:
    profile = one_label_each(4, refuses=refuses)
    made = entrants(make_twin(Recipe(), profile, tmp_path).tables, profile, checked)
    entered = [case.name for case in made.cases]
    assert entered[0] == "fedavg"
    assert ("label-mixes" in entered) == ("mixes" not in refuses)
    assert ("fedmix mixup_ratio=0.05" in entered) == ("means" not in refuses)
    for name in entered:
        assert not set(candidate(name).needs) & set(refuses)
    assert sorted([*entered, *made.refused]) == sorted(one.name for one in CANDIDATES)
    recipes = {case.name: case.recipe for case in made.cases}
    assert recipes["fedprox mu=0.1"].algorithm.settings() == {"mu": 0.1}
    assert recipes["natural-noise"].labels.mix_share == 0.0


def test_what_does_not_go_with_the_recipe_is_refused_with_its_reason(tmp_path: Path) -> None:
    recipe = Recipe.model_validate(
        {"secure_aggregation": {"enabled": True}, "wire": {"uplink": "fp32"}}
    )
    profile = one_label_each(4)
    made = entrants(make_twin(recipe, profile, tmp_path).tables, profile, checked)
    assert "fedavg" in [case.name for case in made.cases]
    assert "fedma" in made.refused
    assert "Secure aggregation" in made.refused["fedma"]


def test_candidates_that_are_tested_elsewhere_are_not_compared(tmp_path: Path) -> None:
    profile, name = one_label_each(4), "fedmoe experts=4"
    made = entrants(make_twin(Recipe(), profile, tmp_path).tables, profile, checked)
    assert "tested on the devices' data" in made.refused[name]
    on_devices = Recipe.model_validate({"evaluation": {"on": "devices"}})
    tables = make_twin(on_devices, profile, tmp_path).tables
    assert name in [case.name for case in entrants(tables, profile, checked).cases]


def test_only_wanted_methods_enter_and_unknown_ones_are_named(tmp_path: Path) -> None:
    profile = one_label_each(4)
    tables = make_twin(Recipe(), profile, tmp_path).tables
    made = entrants(tables, profile, checked, ["fedavg", "fedopt"])
    assert [case.name.split()[0] for case in made.cases] == ["fedavg", "fedopt", "fedopt"]
    with pytest.raises(UnknownNameError, match="named 'fedav'") as raised:
        entrants(tables, profile, checked, ["fedav"])
    assert raised.value.code == "advise.method"

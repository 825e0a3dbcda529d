"""A twin has the profile's histograms and speeds; assumptions about unknown ones are said."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from edgefed.advise.candidates import CANDIDATES, candidate, entrants
from edgefed.advise.profile import Profile, Shared
from edgefed.advise.stand_in import StandIn, scaled
from edgefed.advise.twin import make_twin
from edgefed.api.recipe_source import checked
from edgefed.config.recipes.recipe import DataSection, Recipe
from edgefed.data.sets.datasets import load
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
    blind = make_twin(Recipe(), nothing, tmp_path, StandIn({"name": "digits", "partition": "iid"}))
    assert (blind.tables["data"], blind.timed) == ({"name": "digits", "partition": "iid"}, False)
    assert "dealt by the recipe's partition iid" in blind.notes[0]
    assert blind.notes[1] == "No run has measured the devices: times are unknown."


def test_files_of_other_histograms_have_other_names(tmp_path: Path) -> None:
    one = make_twin(Recipe(), one_label_each(3, 20), tmp_path).tables["data"]["histograms"]
    other = make_twin(Recipe(), one_label_each(3, 21), tmp_path).tables["data"]["histograms"]
    assert one != other
    assert make_twin(Recipe(), one_label_each(3, 20), tmp_path).tables["data"]["histograms"] == one


@pytest.mark.parametrize("refuses", [(), ("means",), ("mixes",), ("labels", "means")])
def test_what_owners_refuse_never_enters(tmp_path: Path, refuses: tuple[Shared, ...]) -> None:
    profile = one_label_each(4, refuses=refuses)
    made = entrants(make_twin(Recipe(), profile, tmp_path).tables, profile, checked)
    entered = [case.name for case in made.cases]
    assert entered[0] == "fedavg"
    assert ("label-mixes" in entered) == (not {"mixes", "labels"} & set(refuses))
    assert ("natural-noise" in entered) == ("labels" not in refuses)
    assert ("fedmix mixup_ratio=0.05" in entered) == ("means" not in refuses)
    assert ("fedma" in entered) == ("labels" not in refuses)  # it sends label counts
    assert "fedma last_layer=samples" in entered
    for name in entered:
        assert not set(candidate(name).needs) & set(refuses)
    assert sorted([*entered, *made.refused]) == sorted(one.name for one in CANDIDATES)
    recipes = {case.name: case.recipe for case in made.cases}
    assert recipes["fedprox mu=0.1"].algorithm.settings() == {"mu": 0.1}
    if "labels" not in refuses:
        assert recipes["natural-noise"].labels.mix_share == 0.0


def test_the_energy_of_a_device_is_that_of_all_its_passes(tmp_path: Path) -> None:
    fleet = one_label_each(2, 40)
    devices = (fleet.devices[0].model_copy(update={"joules_per_sample": 0.5}), fleet.devices[1])
    known = fleet.model_copy(update={"devices": devices})
    recipe = Recipe.model_validate({"rounds": {"count": 3, "cohort": 1}, "training": {"epochs": 2}})
    # 40 samples x 0.5 J x 2 epochs x 3 rounds, in half of which the device is asked.
    assert make_twin(recipe, known, tmp_path).joules == 60.0
    assert make_twin(recipe, fleet, tmp_path).joules is None


def test_a_twin_is_shifted_as_far_as_the_devices_inputs_differ(tmp_path: Path) -> None:
    fleet = one_label_each(2)
    apart = [
        d.model_copy(update={"channels": ((m, 1.0),)})
        for d, m in zip(fleet.devices, (0, 2), strict=True)
    ]
    shifted = make_twin(Recipe(), fleet.model_copy(update={"devices": tuple(apart)}), tmp_path)
    data = shifted.tables["data"]
    assert (data["transform"], data["feature_strength"]) == ("offset", 0.707)
    assert "differ by 0.71 standard deviations" in shifted.notes[0]
    recipe = Recipe.model_validate({"data": {"transform": "rotation"}})
    kept = make_twin(recipe, fleet.model_copy(update={"devices": tuple(apart)}), tmp_path)
    assert kept.tables["data"]["transform"] == "rotation"
    assert make_twin(Recipe(), fleet, tmp_path).tables["data"].get("transform", "none") == "none"


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
    nothing = [device.model_copy(update={"held_out": 0}) for device in profile.devices]
    blind = profile.model_copy(update={"devices": tuple(nothing)})
    assert "none holds samples out" in entrants(tables, blind, checked).refused[name]


def test_only_wanted_methods_enter_and_unknown_ones_are_named(tmp_path: Path) -> None:
    profile = one_label_each(4)
    tables = make_twin(Recipe(), profile, tmp_path).tables
    made = entrants(tables, profile, checked, ["fedavg", "fedopt"])
    assert [case.name.split()[0] for case in made.cases] == ["fedavg", "fedopt", "fedopt"]
    with pytest.raises(UnknownNameError, match="named 'fedav'") as raised:
        entrants(tables, profile, checked, ["fedav"])
    assert raised.value.code == "advise.method"


def test_stand_in_images_get_the_form_of_the_devices(tmp_path: Path) -> None:
    profile = one_label_each(10).model_copy(update={"shape": (3, 16, 12)})
    section = {"name": "digits", "partition": "iid"}
    twin = make_twin(Recipe(), profile, tmp_path, StandIn(section))
    data = np.load(twin.tables["data"]["path"])
    assert data["x_train"].shape[1:] == data["x_test"].shape[1:] == (3, 16, 12)
    before = load(DataSection.model_validate(section), None, seed=0)
    assert np.array_equal(data["y_train"], before.train.targets)
    assert np.allclose(
        data["x_train"].mean((1, 2, 3)), before.train.inputs.mean((1, 2, 3)), atol=0.02
    )
    same = one_label_each(10).model_copy(update={"shape": (1, 8, 8)})
    assert make_twin(Recipe(), same, tmp_path, StandIn(section)).tables["data"]["name"] == "digits"
    flat = one_label_each(10).model_copy(update={"shape": (64,)})
    (note,) = make_twin(Recipe(), flat, tmp_path, StandIn(section)).notes
    assert note.startswith(
        "The stand-in data have inputs of shape (1, 8, 8), the devices' of (64,)"
    )


def test_images_are_scaled_by_area_and_channels_by_their_mean() -> None:
    image = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    both = np.concatenate([image, image + 2], axis=1)
    same = scaled(both, (3, 4, 4))
    assert np.array_equal(same, np.repeat(image + 1, 3, axis=1))
    assert scaled(np.full((2, 1, 8, 8), 0.25), (1, 5, 3)) == pytest.approx(
        np.full((2, 1, 5, 3), 0.25)
    )


def test_a_larger_model_takes_as_much_longer_as_it_does_here(tmp_path: Path) -> None:
    small, large = ({"name": "mlp", "hidden": [width]} for width in (8, 4096))
    profile = one_label_each(10, shape=(1, 8, 8), batch_size=16, model=small)
    recipe = Recipe.model_validate({"model": large, "training": {"batch_size": 16}})
    first = make_twin(recipe, profile, tmp_path).tables["speeds"]["file"]
    seconds = float(_rows(first)[1][1])
    assert seconds > 2 * 0.01
    assert make_twin(recipe, profile, tmp_path).tables["speeds"]["file"] == first  # kept
    measured = recipe.model.model_dump(mode="json", exclude_none=True)
    same = profile.model_copy(update={"model": measured})
    assert _rows(make_twin(recipe, same, tmp_path).tables["speeds"]["file"])[1][1] == "0.01"
    # Half the batch: twice as many steps, so more time for each sample.
    other = Recipe.model_validate({"model": large, "training": {"batch_size": 2}})
    assert float(_rows(make_twin(other, same, tmp_path).tables["speeds"]["file"])[1][1]) > 0.01

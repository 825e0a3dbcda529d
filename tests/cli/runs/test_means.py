"""``edgefed run means``: the averages of a run as a table, as JSON and as a picture."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFont

from edgefed.config.recipes.recipe import Recipe
from edgefed.errors import DataError
from edgefed.process.clock import SystemClock
from edgefed.report.contact_sheet import captions_of, sheet
from edgefed.report.means import Means, labels_in_words, means_of_folder
from edgefed.report.tiles import MAX_TILES
from edgefed.sharing.types import Array, Entries
from edgefed.simulator.run import Simulation
from tests.cli.commands import Told, edgefed
from tests.cli.conftest import SmallFleet


def plan(**sections: Any) -> Recipe:
    values: dict[str, Any] = {
        "model": {"name": "mlp", "hidden": [4]},
        "algorithm": {"name": "fedmix"},
        "data": {"partition": "classes", "classes_per_device": 2, "limit": 200},
        "rounds": {"count": 1},
        "simulation": {"devices": 5, "workers": 1},
    }
    return Recipe.model_validate({**values, **sections})


def simulated(state: Path, **sections: Any) -> Path:
    """Return the folder of a finished simulation in a state folder."""
    result = Simulation(plan(**sections), state / "simulations", SystemClock()).run()
    assert result.record.status == "finished", result.record.reason
    return result.folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run whose five devices share, in a state folder of its own."""
    return simulated(tmp_path_factory.mktemp("state"))


def means(*words: str | Path, state: Path | None = None) -> Told:
    return edgefed("run", "means", *words, state=state)


def test_a_table_names_the_main_labels_of_each_entry(run: Path) -> None:
    told = means(run)
    assert (told.code, told.err) == (0, "")
    head, *rows = told.out.splitlines()
    assert head.split() == ["ENTRY", "LABELS"]
    assert [row.split()[0] for row in rows] == list("01234")
    assert all(row.count("%") == 2 for row in rows)


def test_json_has_every_labels_share(run: Path) -> None:
    told = means(run, "--json").json
    assert (told["run"], told["entries"], told["shape"]) == (run.name, 5, [1, 8, 8])
    assert np.sum(told["labels"], axis=1) == pytest.approx(np.ones(5), abs=1e-4)


def test_a_picture_is_written_for_a_run_that_is_named_or_the_newest(
    run: Path, tmp_path: Path
) -> None:
    state = run.parents[2]
    for words in ((run.name[:6], "--local"), ("--local",), (str(run),)):
        file = tmp_path / "new" / "means.png"
        told = means(*words, "--png", file, state=state)
        assert (told.code, told.out, told.err) == (0, f"{file}\n", "")
        with Image.open(file) as picture:
            assert (picture.format, picture.mode) == ("PNG", "RGB")
        file.unlink()
    told = means(run, "--png", tmp_path / "means.png", "--json")
    assert told.json["file"] == str(tmp_path / "means.png")


def test_what_cannot_be_shown_is_told_in_a_line(run: Path, tmp_path: Path) -> None:
    means(tmp_path).failed(5, "run.unknown", "not a run's folder")
    means("r-9999", "--local", state=tmp_path).failed(5, "run.unknown", "No run r-9999")
    (tmp_path / "file").write_text("")
    means(run, "--png", tmp_path / "file" / "x.png").failed(1, "storage.failed", "x.png")
    means(run, "--png", tmp_path).failed(1, "storage.failed", str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_run_without_averages_or_without_its_state_is_told(tmp_path: Path) -> None:
    plain = simulated(tmp_path / "plain", algorithm={"name": "fedavg"})
    means(plain).failed(5, "means.none", "holds no averaged data", "fedmix")
    silent = simulated(tmp_path / "silent", simulation={"devices": 5, "workers": 1, "sharing": 0.0})
    means(silent).failed(5, "means.none", "holds no averaged data")
    (state,) = silent.glob("state-*.safetensors")
    state.write_bytes(b"damaged")
    means(silent).failed(1, "means.state", "cannot be read")
    state.unlink()
    means(silent).failed(1, "means.state", "has no state")


def test_rows_of_numbers_have_a_table_and_no_picture(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    path = tmp_path / "rows.npz"
    parts = {"x_train": rng.random((60, 7)), "x_test": rng.random((9, 7))}
    labels = {"y_train": np.arange(60) % 3, "y_test": np.arange(9) % 3}
    np.savez(path, **{k: v.astype(np.float32) for k, v in parts.items()}, **labels)  # type: ignore[arg-type]
    folder = simulated(tmp_path, data={"name": "npz", "path": str(path), "partition": "iid"})
    assert means(folder).code == 0
    file = tmp_path / "x.png"
    means(folder, "--png", file).failed(1, "means.shape", "not images: an entry is 7")
    assert not file.exists()


@pytest.mark.mosquitto
def test_an_operator_sees_what_devices_share(fleet: SmallFleet, tmp_path: Path) -> None:
    run = fleet.begin("--algorithm", "fedmix", "--rounds", "1")
    record = fleet.wait_for(run, "finished")
    assert record["sharing"] == 2
    assert f"of 2 devices: edgefed run means {run}" in fleet("run", "show", run).out
    listed = fleet("device", "list", "--json").json
    assert [device["shared_entries"] for device in listed] == [1, 1]
    groups = [device["shared_group"] for device in listed]
    assert groups == [device["samples"] for device in listed]
    assert all(device["shared_bytes"] > 64 for device in listed)
    head, *rows = fleet("device", "list").out.splitlines()
    assert head.split()[-3:] == ["MEANS", "GROUP", "HARDWARE"]
    assert all(f"  {group}  " in row for group, row in zip(groups, rows, strict=True))
    assert f"2 from 2 devices, of {min(groups)} samples or more each" in fleet("status").out
    status = fleet("status", "--json").json
    for told, device in zip(status["devices"], listed, strict=True):  # the rest may have changed
        assert told.keys() == device.keys()
        for key in ("device", "samples", "shared_entries", "shared_group", "shared_bytes"):
            assert told[key] == device[key]
    shared = [line["text"] for line in status["lines"] if "  shared " in line["text"]]
    assert [text.split(",")[0] for text in sorted(shared)] == [
        f"{device['device']}  shared 1 entry of {device['samples']} samples" for device in listed
    ]
    assert len(fleet("run", "means", run).out.splitlines()) == 3
    file = tmp_path / "means.png"
    assert fleet("run", "means", "--png", file).out == f"{file}\n"
    assert file.read_bytes().startswith(b"\x89PNG")
    fleet("run", "means", "r-9").failed(5, "run.unknown", "No run r-9")


@pytest.mark.mosquitto
def test_a_fleet_refuses_raw_data_before_it_asks(fleet: SmallFleet) -> None:
    told = fleet("run", "start", fleet.recipe, "--algorithm", "globalmix")
    told.failed(2, "run.simulation_only", "raw data of all devices")


# -- the picture ----------------------------------------------------------------------------------


def drawn(inputs: Array) -> Array:
    count = len(inputs)
    targets = np.tile(np.array([[0.5, 0.25, 0.25]], np.float32), (count, 1))
    picture = Image.open(io.BytesIO(sheet(Means("r-1", Entries(inputs, targets)))))
    return np.asarray(picture)


def test_a_caption_names_every_label() -> None:
    shares = np.zeros((2, 62), np.float32)
    shares[0, 7], shares[1] = 1.0, np.arange(62) / np.arange(62).sum()
    averages = Means("r-1", Entries(np.zeros((2, 1, 8, 8), np.float32), shares))
    font = ImageFont.load_default(size=12)
    one, many = captions_of(averages, 2, 96, font)
    assert one == ["entry 0", "7: 100 %"]
    named = [word.split(":")[0] for line in many[1:] for word in line.split("  ")]
    assert named == [str(label) for label in range(61, 0, -1)]  # label 0 has no share
    assert max(font.getlength(line) for line in many) <= 96
    picture = Image.open(io.BytesIO(sheet(averages)))
    last = np.asarray(picture)[-30:, 96 + 20 :]
    assert (last == 20).all(axis=2).any()  # ink down to the last line


def test_the_darkest_value_of_all_is_black_and_the_lightest_white() -> None:
    inputs = np.zeros((2, 1, 4, 4), np.float32)
    inputs[0, 0, 0, 0], inputs[1, 0, 3, 3] = -3.0, 5.0
    picture = drawn(inputs)
    tiles = picture[40:136]  # below the title, above the captions
    found = {tuple(colour) for colour in tiles.reshape(-1, 3)} - {(255, 255, 255)}
    assert found == {(0, 0, 0), (96, 96, 96)}  # -3, and 0, which is 3/8 of the way to 5
    assert (picture[40, 12] == 0).all()
    assert (picture[135, 12 + 96 + 10 + 95] == 255).all()


def test_three_channels_are_colours() -> None:
    inputs = np.zeros((1, 3, 8, 8), np.float32)
    inputs[0, 0] = 1.0
    assert (drawn(inputs)[40:136, 12:108] == (255, 0, 0)).all()


@pytest.mark.parametrize("shape", [(1, 9, 5), (28, 28), (3, 200, 120)])
def test_any_image_is_drawn(shape: tuple[int, ...]) -> None:
    picture = drawn(np.random.default_rng(1).random((3, *shape)).astype(np.float32))
    assert picture.shape[0] >= shape[-2]
    assert picture.shape[1] >= 2 * shape[-1]


@pytest.mark.parametrize("shape", [(), (5,), (2, 8, 8), (6, 3, 8, 8)])
def test_what_is_no_image_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="are not images"):
        drawn(np.zeros((2, *shape), np.float32))


def test_hidden_states_are_listed_and_not_drawn(tmp_path: Path) -> None:
    split = {"name": "fedmix", "split": 1}
    folder = simulated(tmp_path, model={"name": "cnn"}, algorithm=split)
    assert means(folder).code == 0
    means(folder, "--png", tmp_path / "x.png").failed(1, "means.shape", "inside the model")


def test_of_very_many_the_first_are_drawn() -> None:
    some = drawn(np.zeros((MAX_TILES, 1, 8, 8), np.float32))
    many = drawn(np.zeros((MAX_TILES + 99, 1, 8, 8), np.float32))
    assert some.shape == many.shape


def test_labels_in_words() -> None:
    assert labels_in_words(np.array([0, 0.4, 0, 0.6], np.float32), 4) == "3 60 %, 1 40 %"
    assert labels_in_words(np.array([0.4, 0.3, 0.2, 0.1]), 2) == "0 40 %, 1 30 % and 2 more"


def test_the_newest_state_is_read(run: Path, tmp_path: Path) -> None:
    """A commit clears up after itself, and may be killed before it does."""
    (tmp_path / "events.jsonl").write_text("")
    (tmp_path / "state-000000.safetensors").write_bytes(b"an older one")
    for state in run.glob("state-*.safetensors"):
        (tmp_path / state.name).write_bytes(state.read_bytes())
    assert len(means_of_folder(tmp_path).entries) == 5

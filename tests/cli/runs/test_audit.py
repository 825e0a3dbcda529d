"""``edgefed run audit``: label frequencies that the coordinator of a run could compute."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.rounds.label_audit import AUDIT
from edgefed.process.clock import SystemClock
from edgefed.simulator.run import Simulation
from tests.cli.commands import Told, edgefed

DEVICES = 4


def plan(algorithm: dict[str, Any], **sections: Any) -> Recipe:
    values: dict[str, Any] = {
        "model": {"name": "mlp", "hidden": [8]},
        "data": {"partition": "dirichlet", "alpha": 0.3, "limit": 200},
        "training": {"learning_rate": 0.1, "batch_size": 4},
        "rounds": {"count": 2},
        "simulation": {"devices": DEVICES, "engine": "sequential"},
    }
    return Recipe.model_validate({**values, "algorithm": algorithm, **sections})


def simulated(
    state: Path, *, audit: bool = True, sections: dict[str, Any] | None = None, **algorithm: Any
) -> Path:
    made = plan(algorithm, **(sections or {}))
    result = Simulation(made, state / "simulations", SystemClock(), audit=audit).run()
    assert result.record.status == "finished", result.record.reason
    return result.folder


def audited(folder: Path, *words: str | Path) -> Told:
    return edgefed("run", "audit", folder, *words, state=folder)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of plain averaging that is audited."""
    return simulated(tmp_path_factory.mktemp("plain"), name="fedavg")


ONE_STEP = {"training": {"learning_rate": 0.1, "batch_size": 200, "epochs": 1}}


def test_plain_averaging_tells_each_devices_labels(plain: Path) -> None:
    told = audited(plain, "--json").json
    assert told["labels"] == [str(label) for label in range(10)]
    answers = told["answers"]
    assert [row["device"] for row in answers] == [f"device-0{n}" for n in range(DEVICES)]
    assert {(row["round"], row["source"], row["determined"]) for row in answers} == {
        (1, "output-bias", False)
    }
    for row in answers:
        assert sum(row["shares"]) == pytest.approx(1, abs=1e-5)
        assert sum(row["true"]) == pytest.approx(1)
        assert row["distance"] < 0.25
    assert told["mean_distance"] == pytest.approx(sum(row["distance"] for row in answers) / DEVICES)
    later = audited(plain, "--round", "2", "--json").json["answers"]
    assert {row["round"] for row in later} == {2}


def test_one_step_on_all_samples_tells_more(tmp_path: Path) -> None:
    told = audited(simulated(tmp_path, name="fedavg", sections=ONE_STEP), "--json").json
    assert all(row["determined"] for row in told["answers"])
    assert told["mean_distance"] < 0.1


def test_the_audit_changes_no_bit(plain: Path, tmp_path: Path) -> None:
    without = simulated(tmp_path, audit=False, name="fedavg")
    digests = {(folder / "model.safetensors").read_bytes()[-400:] for folder in (plain, without)}
    assert len(digests) == 1
    assert (plain / AUDIT).exists()
    assert not (without / AUDIT).exists()
    audited(without).failed(5, "audit.none", without.name, "edgefed sim run --audit")


def test_as_many_experts_as_labels_tell_all_and_fewer_do_not(tmp_path: Path) -> None:
    many: dict[str, Any] = {"name": "fedmoe", "experts": 14, "server_learning_rate": 0.3}
    many["table_learning_rate"] = 0.3
    sections = {"rounds": {"count": 5}}
    told = audited(simulated(tmp_path / "a", sections=sections, **many), "--round", "5", "--json")
    assert {row["source"] for row in told.json["answers"]} == {"mixture"}
    assert all(row["determined"] for row in told.json["answers"])
    assert told.json["mean_distance"] < 1e-3
    few = audited(simulated(tmp_path / "b", name="fedmoe", experts=3), "--json").json
    assert not any(row["determined"] for row in few["answers"])


def test_shares_of_a_columns_values_are_not_taken_for_labels(tmp_path: Path) -> None:
    turned = {"data": {"partition": "iid", "limit": 200, "transform": "rotation", "angles": 4}}
    column: dict[str, Any] = {"condition": "rotation", "condition_values": 4, "experts": 2}
    folder = simulated(tmp_path, sections=turned, name="fedmoe", **column)
    answers = audited(folder, "--json").json["answers"]
    assert {row["source"] for row in answers} == {"output-bias"}
    assert {len(row["shares"]) for row in answers} == {10}


def test_of_a_run_with_experts_the_state_tells_too(tmp_path: Path) -> None:
    folder = simulated(tmp_path, audit=False, name="fedmoe", experts=3)
    told = audited(folder)
    assert (told.code, told.err) == (0, "")
    head, *rows, mean = told.out.splitlines()
    assert head.split() == ["DEVICE", "ROUND", "SOURCE", "UNIQUE", "COMPUTED", "TRUE", "DISTANCE"]
    assert [row.split()[1:4] for row in rows] == [["2", "state", "no"]] * DEVICES
    assert mean.split()[0] == "mean"


def test_the_picture_shows_true_beside_computed(plain: Path, tmp_path: Path) -> None:
    file = tmp_path / "audit.svg"
    assert audited(plain, "--svg", file).out.strip() == str(file)
    root = ElementTree.fromstring(file.read_text())
    words = [each.text or "" for each in root.iter() if each.tag.endswith("text")]
    assert {"true", "computed"} <= set(words)
    assert any(word.startswith("device-03  0.") for word in words)


def test_a_bias_that_stays_on_the_device_tells_nothing(tmp_path: Path) -> None:
    folder = simulated(tmp_path, name="fedavg", sections={"personal": {"preset": "biased"}})
    audited(folder).failed(5, "audit.none", "neither an output bias nor shares of experts")


@pytest.mark.parametrize("change", ["{}", "no JSON", '{"source": "elsewhere"}'])
def test_a_damaged_record_is_named(plain: Path, tmp_path: Path, change: str) -> None:
    folder = shutil.copytree(plain, tmp_path / "copied")
    lines = (folder / AUDIT).read_text().splitlines()
    (folder / AUDIT).write_text("\n".join([lines[0], change, *lines[2:]]) + "\n")
    audited(folder).failed(1, "audit.invalid", "Line 2 of", AUDIT)


def test_a_line_that_a_crash_cut_short_is_left_out(plain: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(plain, tmp_path / "copied")
    whole = (folder / AUDIT).read_text()
    (folder / AUDIT).write_text(whole[:-30])
    assert len(json.loads(audited(folder, "--json").out)["answers"]) == DEVICES


def test_the_command_records_when_it_is_asked_to(tmp_path: Path) -> None:
    words = ("--rounds", "1", "--devices", "2", "--set", "data.limit=100", "--audit", "--json")
    told = edgefed("--quiet", "sim", "run", *words, state=tmp_path)
    folder = Path(told.json["model"]).parent
    assert len((folder / AUDIT).read_text().splitlines()) == 2
    assert edgefed("run", "audit", "--local", "--json", state=tmp_path).json["run"] == folder.name

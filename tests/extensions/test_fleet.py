"""Devices of a real fleet on which a plug-in is broken or missing: the round goes on without."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.learn.modeling.model_building import NETWORK_PLUGINS
from tests.extensions import plugin_examples
from tests.faults.fleet_processes import FleetProcesses
from tests.plugin_package import ROOT, importable, write_package
from tests.programs.forked_programs import ForkedProgram

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

ALGORITHM = """
import os
if os.environ.get("BOARD") == "device-01":
    raise ImportError("libboard.so.1: cannot open shared object file")

from edgefed.extension import FedAvg

class Mine(FedAvg):
    name = "mine"
    summary = "FedAvg by another name"
    paper = "none"
"""


class Boards(FleetProcesses):
    """A fleet with a broken installation on device-01 and none on device-02."""

    site: Path

    def start(self, name: str) -> None:
        """Start a part with the installation of its own."""
        if name == "broker":
            super().start(name)
            return
        kept = {k: v for k, v in os.environ.items() if not k.startswith("EDGEFED_")}
        words, log = self._command(name), self.folder / f"{name}.log"
        with pytest.MonkeyPatch.context() as patch:
            if name == "device-02":  # a fork has the path of this process
                kept["PYTHONPATH"] = str(ROOT)
                patch.setattr(sys, "path", [each for each in sys.path if each != str(self.site)])
            self.processes[name] = ForkedProgram(words, {**kept, "BOARD": name}, log)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install an algorithm and a model for this process and those that it starts."""
    folder = tmp_path / "site"
    write_package(folder, "mine", {"mine": "mine_algorithm:Mine"})
    points = {"plain": f"{plugin_examples.__name__}:PLAIN"}
    write_package(folder, "plain", points, NETWORK_PLUGINS.group)
    (folder / "mine_algorithm.py").write_text(ALGORITHM)
    with importable(folder, monkeypatch):
        yield folder


def recipe(**sections: Any) -> Recipe:
    values: dict[str, Any] = {
        "name": "plugged",
        "seed": 3,
        "model": {"name": "mlp", "hidden": [8]},
        "data": {"name": "digits", "limit": 120, "partition": "iid"},
        "rounds": {"count": 2, "min_devices": 3, "quorum": 0.3},
        "evaluation": {"on": "coordinator"},
        "simulation": {"devices": 3},
    }
    return Recipe.model_validate({**values, **sections})


def test_a_device_with_a_broken_or_missing_plug_in_refuses_and_the_others_train(
    site: Path, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    Boards.site = site
    home = Boards(tmp_path / "home", recipe())
    try:
        home.wait_for_devices(3)
        run = home.begin(recipe(algorithm={"name": "mine"}))
        record = home.finish(run)
        replies = home.events(run, "reply", question="fit")
        second = home.begin(recipe(model={"name": "plain", "units": 4}))
        again = home.finish(second)
        others = home.events(second, "reply", question="fit")
        alive = {name: process.poll() for name, process in home.processes.items()}
    finally:
        home.close()
    assert record["status"] == "finished", record["reason"]
    found = {(each["device"], each["outcome"]) for each in replies}
    assert found == {
        ("device-00", "accepted"),
        ("device-01", "refused"),
        ("device-02", "refused"),
    }
    broken = [each["reason"] for each in replies if each["device"] == "device-01"]
    missing = [each["reason"] for each in replies if each["device"] == "device-02"]
    assert len(broken) == len(missing) == 2, "each round asks them again"
    assert all("package mine cannot be used" in reason for reason in broken)
    assert all("libboard.so.1" in reason for reason in broken)
    assert all(reason.startswith("No algorithm 'mine'") for reason in missing)
    assert all("install that package on this device" in reason for reason in missing)
    assert again["status"] == "finished", again["reason"]
    assert {(each["device"], each["outcome"]) for each in others} == {
        ("device-00", "accepted"),
        ("device-01", "accepted"),
        ("device-02", "refused"),
    }
    assert set(alive.values()) == {None}, "no agent ended"

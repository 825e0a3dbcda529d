"""A model of a user's own code on a real coordinator: not imported unless its settings say so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from broker.address import LOOPBACK, free_port
from edgefed.cli.programs.processes import Processes, running, wait_for_coordinator
from edgefed.config.values.address import Address
from edgefed.coordinator.models.run_model import load_dataset
from edgefed.data.devices.partition import deal
from edgefed.data.devices.shard_files import write_shard
from tests.cli.commands import TINY, Told, edgefed, loaded, recipe_file
from tests.programs.forked_fleet import ForkedProcesses
from tests.transport.listening import wait_until

pytestmark = pytest.mark.mosquitto

FLEET = "own-models"
DEVICE = "device-01"

OWN = """
from math import prod
from pathlib import Path

from torch import nn

Path(__file__).with_name("imported").touch()


def make(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), classes))
"""


@dataclass(frozen=True)
class Fleet:
    """Mosquitto, a coordinator and one agent, for all of whom a user's package is installed."""

    processes: Processes
    folder: Path

    @property
    def imported(self) -> Path:
        """A file that exists once somebody has imported the user's package."""
        return self.folder / "packages" / "imported"

    def __call__(self, *words: str | Path) -> Told:
        url = str(self.processes.address)
        return edgefed("--broker", url, "--fleet", FLEET, *words)

    def start(self, recipe: Path) -> Told:
        return self("--quiet", "run", "start", recipe, "--paused")

    def show(self, run: str) -> dict[str, Any]:
        return dict(self("run", "show", run, "--json").json)

    def start_coordinator(self, *, user_models: bool) -> None:
        self.processes.user_models = user_models
        self.processes.start_coordinator()
        wait_for_coordinator(self.processes)


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "shop_models.py").write_text(OWN)
    monkeypatch.setenv("PYTHONPATH", str(packages))
    processes = ForkedProcesses(Address(LOOPBACK, free_port()), FLEET, tmp_path / "state")
    with running(processes):
        processes.start_broker("mosquitto")
        yield Fleet(processes, tmp_path)


def own_recipe(folder: Path) -> Path:
    text = TINY.replace('"mlp"\nhidden = [8]', '"shop_models:make"')
    return recipe_file(folder, text.replace("min_devices = 2", "min_devices = 1"))


def test_a_request_cannot_make_the_coordinator_import_code(fleet: Fleet, tmp_path: Path) -> None:
    fleet.start_coordinator(user_models=False)
    told = fleet.start(own_recipe(tmp_path))
    told.failed(1, "model.refused", "shop_models:make", "user_models = true")
    assert fleet("run", "list", "--json").json == []
    assert not fleet.imported.exists()


def test_a_run_that_was_allowed_is_not_taken_up_once_it_is_not(
    fleet: Fleet, tmp_path: Path
) -> None:
    recipe = own_recipe(tmp_path)
    dataset = load_dataset(loaded(recipe), None)
    (shard,) = deal(dataset, loaded(recipe).data, 1, 0.0, 1)
    write_shard(tmp_path / "shard.npz", shard)
    fleet.start_coordinator(user_models=True)
    fleet.processes.start_agent(DEVICE, f"npz:{tmp_path / 'shard.npz'}")
    run = fleet.start(recipe).out.strip()
    wait_until(lambda: fleet.show(run)["status"] == "paused", "the run to begin")
    assert fleet.imported.exists()
    assert fleet.processes.coordinator is not None
    fleet.processes.coordinator.stop()
    fleet.imported.unlink()
    fleet.start_coordinator(user_models=False)
    wait_until(lambda: fleet.show(run)["status"] == "failed", "the run to fail")
    assert fleet.show(run)["error"] == "model.refused"
    assert not fleet.imported.exists()

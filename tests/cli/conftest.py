"""A small real fleet that the tests of this folder share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from broker.address import LOOPBACK, free_port
from edgefed.cli.programs.processes import Processes, running, wait_for_coordinator
from edgefed.config.values.address import Address
from edgefed.control.coordinator_client import CoordinatorClient
from edgefed.coordinator.models.run_model import load_dataset
from edgefed.data.devices.partition import deal
from edgefed.data.devices.shard_files import write_shard
from edgefed.simulator.local_fleet import device_names
from tests.cli.commands import TINY, Told, edgefed, loaded, recipe_file
from tests.programs.forked_fleet import ForkedProcesses
from tests.support.open_modes import umask
from tests.transport.listening import wait_until

FLEET = "small"


@dataclass(frozen=True)
class SmallFleet:
    """Mosquitto, a coordinator and two agents, each a process of its own."""

    processes: Processes
    recipe: Path

    @property
    def url(self) -> str:
        return str(self.processes.address)

    def __call__(self, *words: str | Path) -> Told:
        """Run a command as an operator of this fleet."""
        return edgefed("--broker", self.url, "--fleet", FLEET, *words)

    def begin(self, *words: str) -> str:
        """Start a run and return its id."""
        told = self("--quiet", "run", "start", self.recipe, *words)
        assert (told.code, told.err) == (0, "")
        return told.out.strip()

    def show(self, run: str) -> dict[str, Any]:
        return dict(self("run", "show", run, "--json").json)

    def wait_for(self, run: str, status: str) -> dict[str, Any]:
        """Return a run's record once it has a status."""
        with closing(CoordinatorClient(self.processes.address, FLEET)) as client:
            client.connect()
            wait_until(lambda: client.ask("run.show", run=run)["status"] == status, status)
        return self.show(run)


@pytest.fixture(scope="package")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallFleet]:
    folder = tmp_path_factory.mktemp("fleet")
    path = recipe_file(folder, TINY)
    recipe = loaded(path)
    processes = ForkedProcesses(Address(LOOPBACK, free_port()), FLEET, folder / "state")
    with running(processes):
        with umask(0):  # what the processes write is for its owner only all the same
            processes.start_broker("mosquitto")
            processes.start_coordinator()
            shards = deal(load_dataset(recipe, None), recipe.data, 2, 0.0, recipe.seed)
            for name, shard in zip(device_names(2), shards, strict=True):
                write_shard(folder / f"{name}.npz", shard)
                processes.start_agent(name, f"npz:{folder / name}.npz")
        wait_for_coordinator(processes)
        made = SmallFleet(processes, path)
        wait_until(lambda: len(json.loads(made("device", "list", "--json").out)) == 2, "devices")
        yield made

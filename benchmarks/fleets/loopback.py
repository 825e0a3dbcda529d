"""Fleets of separate processes on loopback for measurements, without and with certificates."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from broker.address import LOOPBACK, free_port, free_ports
from broker.secured_broker import SecuredBroker
from broker.secured_files import secured_files
from edgefed.cli.programs.follow_run import follow
from edgefed.cli.programs.processes import Processes, running, wait_for_coordinator
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.values.address import Address
from edgefed.control.coordinator_client import CoordinatorClient
from edgefed.data.devices.shard_files import write_shard
from edgefed.errors import EdgeFedError
from edgefed.files.writing import make_folder
from edgefed.process.clock import SystemClock
from tests.faults.fleet_processes import dealt
from tests.signed_fleet import Trust

FLEET = "measured"


@dataclass
class Fleet:
    """A coordinator, agents and Mosquitto, each a process of its own."""

    processes: Processes

    def cpu_seconds(self) -> float:
        """Return the CPU time that all processes have taken so far."""
        own = self.processes
        assert own.coordinator is not None
        assert own.broker is not None
        pids = [own.coordinator.pid, own.broker.pid, *(each.pid for each in own.agents.values())]
        times = (psutil.Process(pid).cpu_times() for pid in pids)
        return float(sum(each.user + each.system for each in times))

    def run(self, plan: Recipe, until: float | None = None) -> dict[str, Any]:
        """Run a recipe to its end and return its row.

        Args:
            plan: the recipe.
            until: the monotonic second at which it is finished early; None for never.
        """
        address, processes = self.processes.address, self.processes
        client = CoordinatorClient(address, FLEET)
        client.connect()
        try:
            body = plan.model_dump(mode="json")
            run = client.order("run.start", recipe=body)["run"]

            told = False

            def alive() -> None:
                nonlocal told
                processes.check()
                if until is not None and time.monotonic() > until and not told:
                    told = True
                    with suppress(EdgeFedError):  # it has just ended by itself
                        client.order("run.order", run=run, action="finish")

            follow(address, FLEET, run, SystemClock(), quiet=True, alive=alive)
            return dict(client.ask("run.show", run=run))
        finally:
            client.close()


@contextmanager
def plain_fleet(folder: Path, plan: Recipe) -> Iterator[Fleet]:
    """Start a fleet without certificates on the data that a recipe deals out."""
    processes = Processes(Address(LOOPBACK, free_port()), FLEET, make_folder(folder))
    with running(processes):
        processes.start_broker("mosquitto")
        yield _started(processes, plan)


@contextmanager
def secured_fleet(folder: Path, plan: Recipe) -> Iterator[Fleet]:
    """Start a fleet in which every party has a certificate: mutual TLS, and signed messages."""
    trust = Trust(make_folder(folder) / "trust" / FLEET, free_ports(), FLEET)
    trust.issue("coordinator")
    trust.issue("broker")
    for device in dealt(plan):
        trust.issue("device", device)
    address = trust.address(trust.issue("operator", "measuring"))
    trust.write_access()
    processes = Processes(address, FLEET, folder)
    with running(processes):
        files = secured_files(trust.folder)
        processes.broker = SecuredBroker(address, folder / "broker", files)
        yield _started(processes, plan)


def _started(processes: Processes, plan: Recipe) -> Fleet:
    processes.start_coordinator()
    for device, shard in dealt(plan).items():
        path = make_folder(processes.folder / "shards") / f"{device}.npz"
        write_shard(path, shard)
        processes.start_agent(device, f"npz:{path}")
    wait_for_coordinator(processes)
    return Fleet(processes)

"""The fleets that benchmarks measure: separate processes on loopback."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
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
from edgefed.data.base.types import Shard
from edgefed.data.devices.shard_files import write_shard
from edgefed.errors import EdgeFedError
from edgefed.files.writing import make_folder
from edgefed.process.clock import SystemClock
from tests.signed_fleet import Trust

FLEET = "measured"
PATIENCE = 60.0
"""Seconds in which devices have to appear."""


@dataclass
class Fleet:
    """A coordinator, agents and a broker, each a process of its own.

    Attributes:
        addresses: the broker's for each device that has a certificate, with its credentials.
    """

    processes: Processes
    addresses: Mapping[str, Address] = field(default_factory=dict)

    @property
    def address(self) -> Address:
        """The broker's."""
        return self.processes.address

    def parts(self) -> dict[str, psutil.Process]:
        """Return the processes by name: ``coordinator``, ``broker`` and the devices."""
        own = self.processes
        assert own.coordinator is not None
        assert own.broker is not None
        pids = {"coordinator": own.coordinator.pid, "broker": own.broker.pid}
        pids |= {name: child.pid for name, child in own.agents.items()}
        return {name: psutil.Process(pid) for name, pid in pids.items()}

    @contextmanager
    def client(self) -> Iterator[CoordinatorClient]:
        """Connect a client of the coordinator, which is closed with the block."""
        client = CoordinatorClient(self.address, FLEET)
        client.connect()
        try:
            yield client
        finally:
            client.close()

    def wait_for_devices(self, count: int, patience: float = PATIENCE) -> None:
        """Wait until the coordinator knows so many devices.

        Args:
            count: the number of devices.
            patience: most seconds to wait.

        Raises:
            RuntimeError: they do not appear in time.
        """
        with self.client() as client:
            ends = time.monotonic() + patience
            while len(seen := client.ask("snapshot")["snapshot"]["devices"]) < count:
                if time.monotonic() > ends:
                    raise RuntimeError(f"Only {len(seen)} of {count} devices appeared.")
                time.sleep(0.1)

    def run(self, plan: Recipe, until: float | None = None) -> dict[str, Any]:
        """Run a recipe to its end and return its row.

        Args:
            plan: the recipe.
            until: the monotonic second at which it is finished early; None for never.

        Raises:
            SystemExit: the run did not finish.
        """
        with self.client() as client:
            run = client.order("run.start", recipe=plan.model_dump(mode="json"))["run"]
            told = False

            def alive() -> None:
                nonlocal told
                self.processes.check()
                if until is not None and time.monotonic() > until and not told:
                    told = True
                    with suppress(EdgeFedError):  # it has just ended by itself
                        client.order("run.order", run=run, action="finish")

            follow(self.address, FLEET, run, SystemClock(), quiet=True, alive=alive)
            record = dict(client.ask("run.show", run=run))
        if record["status"] != "finished":
            raise SystemExit(f"the run {record['status']}: {record['reason']}")
        return record


@contextmanager
def plain_fleet(folder: Path, shards: Mapping[str, Shard]) -> Iterator[Fleet]:
    """Start a fleet without certificates, whose devices hold these samples."""
    processes = Processes(Address(LOOPBACK, free_port()), FLEET, make_folder(folder))
    with running(processes):
        processes.start_broker("auto")
        yield _started(processes, shards, {})


@contextmanager
def secured_fleet(
    folder: Path, shards: Mapping[str, Shard], light: Iterable[str] = ()
) -> Iterator[Fleet]:
    """Start a fleet in which every party has a certificate: mutual TLS, and signed messages.

    Args:
        folder: of the state, the logs and the certificates.
        shards: samples of the devices whose agents are started.
        light: more devices that get a certificate and no agent.
    """
    trust = Trust(make_folder(folder) / "trust" / FLEET, free_ports(), FLEET)
    trust.issue("coordinator")
    trust.issue("broker")
    addresses = {
        device: trust.address(trust.issue("device", device)) for device in (*shards, *light)
    }
    address = trust.address(trust.issue("operator", "measuring"))
    trust.write_access()
    processes = Processes(address, FLEET, folder)
    with running(processes):
        files = secured_files(trust.folder)
        processes.broker = SecuredBroker(address, folder / "broker", files)
        yield _started(processes, shards, addresses)


def _started(
    processes: Processes, shards: Mapping[str, Shard], addresses: Mapping[str, Address]
) -> Fleet:
    processes.start_coordinator()
    for device, shard in shards.items():
        path = make_folder(processes.folder / "shards") / f"{device}.npz"
        write_shard(path, shard)
        processes.start_agent(device, f"npz:{path}")
    wait_for_coordinator(processes)
    return Fleet(processes, addresses)

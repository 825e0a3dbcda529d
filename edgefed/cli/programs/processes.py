"""The processes of a fleet on one machine: broker, coordinator and agents."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from broker.address import connect_host, port_is_free
from broker.child_process import ChildProcess
from broker.start_broker import Kind, RunningBroker, start_broker
from edgefed.config.fleet.alert_settings import AlertSettings
from edgefed.config.loading.write import toml_value
from edgefed.config.values.address import Address
from edgefed.errors import EdgeFedError
from edgefed.files.writing import make_folder


@dataclass
class Processes:
    """Child processes of one fleet; ``stop`` ends them, agents first.

    Attributes:
        folder: their state and logs.
        agents: by device id.
        trackers: names of those that the coordinator notifies of every round.
        user_models: whether coordinator and agents run models of a user's own code.
        share_mixes: whether the agents share mixes of their samples.
        share_gate: whether they share their gates of a mixture of experts, and densities.
        alerts: conditions of the coordinator's alerts, and their receivers.
    """

    address: Address
    fleet: str
    folder: Path
    broker: RunningBroker | None = None
    coordinator: ChildProcess | None = None
    agents: dict[str, ChildProcess] = field(default_factory=dict)
    trackers: Sequence[str] = ()
    user_models: bool = False
    share_mixes: bool = False
    share_gate: bool = False
    alerts: AlertSettings = field(default_factory=AlertSettings)

    def start_broker(self, kind: Kind, allow_anonymous: bool | None = None) -> RunningBroker:
        """Start a broker of our own."""
        self.broker = start_broker(
            self.address, self.folder / "broker", kind, allow_anonymous=allow_anonymous
        )
        return self.broker

    def near_address(self) -> Address:
        """Return the address at which programs on this machine reach the broker."""
        return replace(self.address, host=connect_host(self.address))

    def broker_answers(self) -> bool:
        """Whether a program already listens at the address."""
        return not port_is_free(self.near_address())

    def start_coordinator(self) -> None:
        """Start the coordinator."""
        self.coordinator = self._child(
            "coordinator", ("-m", "edgefed.cli.main", *self._options(), "coordinator")
        )

    def start_agent(self, device: str, source: str, holdout: float = 0.0) -> None:
        """Start a device's agent on its data."""
        own = ("--name", device, "--data", source, "--holdout", str(holdout))
        self.agents[device] = self._child(
            device, ("-m", "device_agent.commands.cli", "run", *self._options(), *own)
        )

    def check(self) -> None:
        """Check that all are running.

        Raises:
            EdgeFedError: one has ended; the message holds the last line of its log.
        """
        for name, child in self._named():
            if not child.is_running():
                said = child.said().splitlines()
                raise EdgeFedError(
                    f"The {name} process ended: {said[-1] if said else 'it said nothing'}",
                    code="demo.process",
                    hint=f"read its log: {child.log}",
                )
        if self.broker is not None and not self.broker.is_running():
            raise EdgeFedError(
                "The broker ended.", code="demo.broker", hint=f"read its log: {self.broker.log}"
            )

    def stop(self) -> None:
        """End all processes that were started."""
        children = [child for _, child in self._named()]
        for child in children:
            if child.is_running():
                child.terminate()
        for child in children:
            child.stop()
        if self.broker is not None:
            self.broker.stop()

    def _named(self) -> Iterator[tuple[str, ChildProcess]]:
        yield from self.agents.items()
        if self.coordinator is not None:
            yield "coordinator", self.coordinator

    def _options(self) -> tuple[str, ...]:
        return ("--no-config", "--fleet", self.fleet, "--state", str(self.folder))

    def _environment(self) -> dict[str, str]:
        """Return our environment without settings of ours, which the arguments replace.

        The broker is there: it may hold a password, which everybody could read among the arguments.
        """
        keep = {k: v for k, v in os.environ.items() if not k.startswith("EDGEFED_")}
        keep["EDGEFED_BROKER"] = self.near_address().with_login()
        keep["EDGEFED_TRACKERS"] = ",".join(self.trackers)
        keep["EDGEFED_USER_MODELS"] = str(self.user_models).lower()
        for key, value in self.alerts.model_dump(exclude_none=True).items():
            keep[f"EDGEFED_ALERTS__{key.upper()}"] = toml_value(value)
        keep["EDGEFED_SHARE_MIXES"] = str(self.share_mixes).lower()
        keep["EDGEFED_SHARE_GATE"] = str(self.share_gate).lower()
        keep["EDGEFED_SHARE_DENSITY"] = str(self.share_gate).lower()
        return keep

    def _child(self, name: str, arguments: Sequence[str]) -> ChildProcess:
        """Start one of our own programs."""
        return ChildProcess(
            [sys.executable, *arguments],
            folder=self.folder,
            log=make_folder(self.folder / "logs") / f"{name}.log",
            environment=self._environment(),
        )


@contextmanager
def running(processes: Processes) -> Iterator[Processes]:
    """Stop the processes at the end of the block, also after an error."""
    try:
        yield processes
    finally:
        processes.stop()


def wait_for_coordinator(processes: Processes, timeout: float = 60.0) -> None:
    """Wait until the coordinator is online.

    Raises:
        EdgeFedError: a process ended, or the coordinator is not online in time.
    """
    from edgefed.control.coordinator_client import CoordinatorClient

    client = CoordinatorClient(processes.near_address(), processes.fleet)
    client.connect()
    until = time.monotonic() + timeout
    try:
        while not client.online:
            processes.check()
            if time.monotonic() > until:
                client.wait_until_online(0.0)
            time.sleep(0.05)
    finally:
        client.close()

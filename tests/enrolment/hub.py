"""A real coordinator's machine: ``edgefed init``, a Mosquitto with TLS, ``edgefed coordinator``."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from broker.address import LOOPBACK, free_ports
from broker.secured_broker import EnrolmentBroker, SecuredBroker, SecuredBrokers
from broker.secured_files import secured_files
from edgefed.config.values.address import Address, parse_address
from edgefed.control.coordinator_client import CoordinatorClient
from edgefed.control.enrolment_client import Applicant, enroll
from edgefed.process.clock import SystemClock
from edgefed.trust.credentials import load_credentials
from edgefed.trust.tokens import Token, parse_token
from tests.processes import clean_environment, start_module
from tests.programs.forked_programs import ForkedProgram, run_module
from tests.transport.listening import wait_until

FLEET = "plant-a"

Told = tuple[int, str, str]


class Hub:
    """The machine of a fleet's authority.

    Args:
        folder: for everything.
        days: for which certificates are valid.
    """

    def __init__(self, folder: Path, days: float = 90.0) -> None:
        self.folder = folder
        self.state = folder / "hub"
        self.port = free_ports()
        self.days = days
        self._coordinator: ForkedProgram | None = None
        self.log = folder / "coordinator.log"
        self.broker_told: list[str] = []
        self.brokers: SecuredBrokers
        assert self.edgefed("init", "--port", str(self.port))[0] == 0

    @property
    def trust(self) -> Path:
        return self.state / "trust" / FLEET

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start ``edgefed`` as the operator of this machine."""
        return start_module(
            "edgefed.cli.main", *self._options(), *words, environment=self._environment()
        )

    def edgefed(self, *words: str) -> Told:
        """Run ``edgefed`` as the operator of this machine, to its end."""
        return run_module(
            "edgefed.cli.main", *self._options(), *words, environment=self._environment()
        )

    def _environment(self) -> dict[str, str]:
        return {"EDGEFED_CERTIFICATE_DAYS": str(self.days)}

    def _options(self) -> tuple[str, ...]:
        return ("--state", str(self.state), "--fleet", FLEET)

    @contextmanager
    def coordinator(self) -> Iterator[CoordinatorClient]:
        """Yield the coordinator as the operator of this machine sees it."""
        own = load_credentials(self.trust / "operator.admin", SystemClock().now())
        address = replace(parse_address(own.broker), credentials=own)
        client = CoordinatorClient(address, FLEET)
        client.connect()
        try:
            yield client
        finally:
            client.close()

    def order(self, action: str, **arguments: Any) -> Any:
        with self.coordinator() as client:
            return client.order(action, **arguments)

    def ask(self, action: str, **arguments: Any) -> Any:
        with self.coordinator() as client:
            return client.ask(action, **arguments)

    def invite(self, name: str = "", role: str = "device", seconds: float = 900.0) -> str:
        """Return a token."""
        told = self.order("member.invite", role=role, name=name, seconds=seconds)
        return str(told["token"])

    def members(self) -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in self.ask("member.list") if row["name"]}

    # -- the programs -------------------------------------------------------------------------

    @contextmanager
    def broker(self, *, reloading: bool = True) -> Iterator[SecuredBroker]:
        """Run the broker; ``reloading`` for one that applies changed files."""
        files = secured_files(self.trust)
        address = Address(LOOPBACK, self.port, tls=True)
        folder = self.folder / "broker"
        if not reloading:
            with (
                SecuredBroker(address, folder, files) as broker,
                EnrolmentBroker(address, folder, files),
            ):
                yield broker
            return
        self.brokers = SecuredBrokers(address, folder, files, self.broker_told.append)
        end = threading.Event()
        running = threading.Thread(target=self.brokers.run, args=(end,))
        running.start()
        try:
            first = self.brokers.fleet.broker
            assert isinstance(first, SecuredBroker)
            yield first
        finally:
            end.set()
            running.join()

    def start_coordinator(self) -> ForkedProgram:
        words = ["edgefed.cli.main", *self._options(), "coordinator"]
        environment = {**clean_environment(), **self._environment()}
        size = self.log.stat().st_size if self.log.exists() else 0
        self._coordinator = ForkedProgram(words, environment, self.log)
        wait_until(lambda: "connected to the broker" in self.said()[size:], "the coordinator")
        return self._coordinator

    def kill_coordinator(self) -> None:
        if self._coordinator is not None:
            self._coordinator.kill()
            self._coordinator.wait()
            self._coordinator = None

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    # -- devices ------------------------------------------------------------------------------

    def device(self, name: str) -> Path:
        """Return the state folder of a device's machine."""
        return self.folder / "devices" / name

    def agent(self, machine: str, *words: str) -> Told:
        return run_module("device_agent.commands.cli", "--state", str(self.device(machine)), *words)

    def start_agent(self, machine: str, *words: str) -> subprocess.Popen[str]:
        state = self.device(machine)
        return start_module("device_agent.commands.cli", "--state", str(state), *words)

    def enroll(self, name: str) -> None:
        """Enrol a device, as its own command does."""
        enroll(self.applicant(name, self.invite(name)), SystemClock(), print)

    def fork_agent(self, name: str, data: Path) -> tuple[ForkedProgram, Path]:
        """Run an enrolled device's agent, which finds name, fleet and broker itself."""
        log = self.folder / f"{name}.log"
        words = ["device_agent.commands.cli", "--state", str(self.device(name)), "run"]
        return ForkedProgram([*words, "--data", f"npz:{data}"], clean_environment(), log), log

    def applicant(self, machine: str, token: Token | str, name: str = "") -> Applicant:
        parsed = parse_token(token) if isinstance(token, str) else token
        return Applicant(parsed, name, ("device",), self.device(machine))

    def credentials(self, name: str) -> Path:
        return self.device(name) / "trust" / FLEET / name


@contextmanager
def running_hub(folder: Path, days: float = 90.0) -> Iterator[Hub]:
    """Yield a hub whose broker and coordinator run."""
    hub = Hub(folder, days)
    with hub.broker():
        hub.start_coordinator()
        try:
            yield hub
        finally:
            hub.kill_coordinator()

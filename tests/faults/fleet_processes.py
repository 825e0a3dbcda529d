"""A whole fleet of real processes that a test can kill and start again."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from broker.address import LOOPBACK, free_port, free_ports
from broker.broker_interface import BrokerProcess
from broker.mosquitto import MosquittoBroker
from broker.secured_broker import SecuredBroker
from broker.secured_files import secured_files
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.values.address import Address
from edgefed.control.coordinator_client import CoordinatorClient
from edgefed.coordinator.models.run_model import load_dataset
from edgefed.data.base.types import Shard
from edgefed.data.devices.partition import deal_recipe
from edgefed.data.devices.shard_files import write_shard
from edgefed.errors import EdgeFedError
from edgefed.events.base.snapshot import Snapshot
from edgefed.simulator.local_fleet import device_names
from tests.faults.faulty_link import FaultyLink
from tests.programs.forked_programs import ForkedProgram, Running
from tests.signed_fleet import SignedBroker, Trust

FLEET = "faults"
DOWN, UP = 5e6, 1.5e6
"""Rates of the devices' links in bytes per second: slow enough to be caught in the middle."""

PATIENCE = 120.0
"""Seconds after which a wait has failed; no test asserts how long anything takes."""


class FleetProcesses:
    """Mosquitto, a coordinator and agents behind slow links, each a process of its own.

    Args:
        folder: of their state and logs.
        recipe: deals out the data, and is run.
        shards: what devices hold instead, by name.
        settings: of agents, beside the usual ones, by device.
        variables: further variables of the environments of agents, by device.
        absent: devices that are not started.
        agent: the module that is run as an agent.
        coordinator: the module that is run as the coordinator.
        holdout: share of its samples that each device holds out for tests; of ``shards`` none.
        signed: whether the fleet has an authority: TLS, signatures and encryption.
        ruled: whether the broker of a signed fleet has the generated rules, or none at all.

    Attributes:
        trust: the authority of a signed fleet; None otherwise.
    """

    def __init__(
        self,
        folder: Path,
        recipe: Recipe,
        *,
        shards: Mapping[str, Shard] | None = None,
        settings: Mapping[str, Mapping[str, str]] | None = None,
        variables: Mapping[str, Mapping[str, str]] | None = None,
        absent: Collection[str] = (),
        agent: str = "device_agent.commands.cli",
        coordinator: str = "edgefed.cli.main",
        holdout: float = 0.0,
        signed: bool = False,
        ruled: bool = False,
    ) -> None:
        self.folder = folder
        self.recipe = recipe
        self._agent = agent
        self._coordinator = coordinator
        self._settings = {} if settings is None else settings
        self._variables = {} if variables is None else variables
        self.address = Address(LOOPBACK, free_ports() if signed else free_port())
        self._ruled = ruled
        self.trust: Trust | None = None
        if signed:
            self.trust = Trust(folder / "state" / "trust" / FLEET, self.address.port, FLEET)
            self.trust.issue("coordinator")
            self.address = self.trust.address(self.trust.issue("operator", "ann"))
        self.broker = self._start_broker()
        self.link = FaultyLink(self.address.port, down=DOWN, up=UP)
        self._sources: dict[str, str] = {}
        self.processes: dict[str, Running] = {}
        self._client: CoordinatorClient | None = None
        self._talking = threading.RLock()
        for name, shard in {**dealt(recipe, holdout), **(shards or {})}.items():
            self.give(name, shard)
        if self.trust is not None:
            for name in self._sources:
                self.trust.issue("device", name)
            self.reload()
        self.start("coordinator")
        for device in self._sources:
            if device not in absent:
                self.start(device)

    # -- processes ----------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start a part that is not running."""
        if name == "broker":
            self.broker = self._start_broker()
            return
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("EDGEFED_")},
            **{f"EDGEFED_{k.upper()}": v for k, v in self._settings.get(name, {}).items()},
            **self._variables.get(name, {}),
        }
        log = self.folder / f"{name}.log"
        self.processes[name] = ForkedProgram(self._command(name), environment, log)

    def kill(self, name: str) -> None:
        """End a part with SIGKILL and wait until it is gone."""
        if name in ("broker", "coordinator"):
            self._disconnect()
        if name == "broker":
            os.kill(self.broker.pid, signal.SIGKILL)
            wait_until(lambda: not self.broker.is_running(), "the broker's end")
            self.broker.stop()
        else:
            self.processes[name].kill()
            self.processes[name].wait()

    def restart(self, name: str) -> None:
        """Kill a part and start it with the settings that it has now."""
        self.kill(name)
        self.start(name)

    def reload(self) -> None:
        """Have the broker admit who has been added, and nobody who has been removed."""
        if self.trust is not None and isinstance(self.broker, SecuredBroker):
            self.trust.write_access()
            self.broker.reload_if_changed()

    def close(self) -> None:
        """End everything."""
        self._disconnect()
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.link.close()
        self.broker.stop()

    def logs(self) -> str:
        """Return what all parts said, for a failed test's message."""
        paths = sorted(self.folder.glob("*.log"))
        return "\n".join(f"== {path.name}\n{path.read_text()[-3000:]}" for path in paths)

    def _start_broker(self) -> BrokerProcess:
        folder = self.folder / "mosquitto"
        if self.trust is not None and self._ruled:
            self.trust.issue("broker")
            self.trust.write_access()
            return SecuredBroker(self.address, folder, secured_files(self.trust.folder))
        if self.trust is not None:
            return SignedBroker(folder, self.trust)
        return MosquittoBroker(self.address, folder)

    def _command(self, name: str) -> list[str]:
        """Return a part's module and its arguments."""
        common = ["--no-config", "--fleet", FLEET, "--state", str(self.folder / "state")]
        if name == "coordinator":
            return [self._coordinator, *common, "--broker", str(self.address), "coordinator"]
        link = f"{self.address.scheme}://{LOOPBACK}:{self.link.port}"
        own = ["--broker", link, "--name", name, "--data", self._sources[name]]
        return [self._agent, "run", *common, *own, "--holdout", "0"]

    def give(self, device: str, shard: Shard) -> None:
        """Let a device hold other samples from its next start on."""
        path = self.folder / f"{device}.npz"
        self._sources[device] = f"npz:{path}"
        write_shard(path, shard)

    # -- the run ------------------------------------------------------------------------------

    def begin(self, recipe: Recipe | None = None, *, paused: bool = False) -> str:
        """Start a run of the fleet's recipe, or of another one, and return its id."""
        body = (recipe or self.recipe).model_dump(mode="json")
        return str(self._order("run.start", recipe=body, paused=paused)["run"])

    def step(self, run: str) -> None:
        """Let a paused run put one more exchange, and wait for its end."""
        begun = self.record(run)["exchanges"]
        self.order(run, "step")

        def done() -> bool:
            record = self.record(run)
            return bool(record["exchanges"] > begun and record["status"] == "paused")

        wait_until(done, "one more exchange", self.logs)

    def resume(self, run: str) -> None:
        """Let a paused run go on."""
        self.order(run, "resume")

    def order(self, run: str, action: str) -> None:
        """Give an order to the run at work."""
        self._order("run.order", run=run, action=action)

    def bounties(self) -> list[dict[str, Any]]:
        """Return the label bounties of the current or last run."""
        snapshot = Snapshot.model_validate(self._ask("snapshot")["snapshot"])
        return [row.model_dump() for row in snapshot.bounties]

    def devices(self) -> dict[str, dict[str, Any]]:
        """Return what is known of the devices, by name."""
        devices = self._ask("snapshot")["snapshot"]["devices"]
        return {device["device"]: device for device in devices}

    def wait_for_devices(self, count: int) -> None:
        """Wait until so many devices are there."""

        def there() -> bool:
            present = [each for each in self.devices().values() if each["state"] != "lost"]
            return len(present) == count

        wait_until(there, f"{count} devices", self.logs)

    def events(self, run: str, kind: str, **wanted: Any) -> list[dict[str, Any]]:
        """Return a run's events of a kind that hold what is wanted, as they are on disk.

        A run that has not begun has none yet.
        """
        log = self.folder / "state" / "coordinator" / FLEET / "runs" / run / "events.jsonl"
        lines = log.read_text().splitlines() if log.exists() else []
        events = [json.loads(line) for line in lines]
        return [each for each in events if each["kind"] == kind and wanted.items() <= each.items()]

    def record(self, run: str) -> dict[str, Any]:
        """Return the run's row."""
        return dict(self._ask("run.show", run=run))

    def finish(self, run: str) -> dict[str, Any]:
        """Wait for the run's end and return its row."""

        def ended() -> bool:
            return self.record(run)["status"] in ("finished", "failed", "aborted")

        wait_until(ended, "the end of the run", self.logs)
        return self.record(run)

    def _ask(self, what: str, /, **arguments: Any) -> Any:
        return self._call(lambda client: client.ask(what, **arguments))

    def _order(self, what: str, /, **arguments: Any) -> Any:
        return self._call(lambda client: client.order(what, **arguments))

    def record_now(self, run: str) -> dict[str, Any]:
        """Return the run's row, if the coordinator answers at once."""
        return dict(self._call(lambda client: client.ask("run.show", run=run), patience=0.0))

    def _call(self, call: Callable[[CoordinatorClient], Any], *, patience: float = PATIENCE) -> Any:
        """Talk to the coordinator, which may be on its way back; connecting is dear."""
        until = time.monotonic() + patience
        while True:
            try:
                with self._talking:
                    return call(self._connected(min(30.0, patience + 5.0)))
            except EdgeFedError as error:
                if error.exit_code != 3:
                    raise
                self._disconnect()
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)

    def _connected(self, patience: float) -> CoordinatorClient:
        if self._client is None:
            self._client = CoordinatorClient(self.address, FLEET)
            self._client.connect()
            self._client.wait_until_online(patience)
        return self._client

    def _disconnect(self) -> None:
        with self._talking:
            if self._client is not None:
                self._client.close()
            self._client = None


def dealt(recipe: Recipe, holdout: float = 0.0) -> dict[str, Shard]:
    """Return the data that a recipe deals out, by device."""
    shards = deal_recipe(load_dataset(recipe, None), recipe, holdout)
    return dict(zip(device_names(len(shards)), shards, strict=True))


def wait_until(
    condition: Callable[[], bool], what: str, said: Callable[[], str] = lambda: ""
) -> None:
    """Return once a condition holds."""
    until = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"waited in vain for {what}\n{said()}")
        time.sleep(0.05)


def begin_watched(home: FleetProcesses, recipe: Recipe | None = None) -> str:
    """Begin a run a second after who watches it has something to wait for, and return its id."""
    run = home.begin(recipe, paused=True)
    threading.Timer(1.0, home.resume, (run,)).start()
    return run


@contextmanager
def fleet(folder: Path, recipe: Recipe, **differences: Any) -> Iterator[FleetProcesses]:
    """A fleet that is ended with the block; ``differences`` are its keyword arguments."""
    folder.mkdir(parents=True, exist_ok=True)
    built = FleetProcesses(folder, recipe, **differences)
    try:
        yield built
    finally:
        built.close()

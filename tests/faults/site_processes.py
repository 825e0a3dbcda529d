"""A fleet whose devices are at sites, behind gateways: real processes, a broker for each site."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from broker.address import LOOPBACK, free_port, free_ports
from broker.broker_interface import BrokerProcess
from broker.mosquitto import MosquittoBroker
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.values.address import Address
from tests.faults.faulty_link import FaultyLink
from tests.faults.fleet_processes import DOWN, FLEET, UP, FleetProcesses, wait_until
from tests.signed_fleet import SignedBroker, Trust


class SiteProcesses(FleetProcesses):
    """Gateways between the fleet's broker and their sites' brokers, each a process of its own.

    Args:
        folder: of their state and logs.
        recipe: deals out the data, and is run.
        sites: the devices of each gateway; other devices are without one.

    Attributes:
        links: of each gateway to the fleet's broker.
    """

    def __init__(
        self, folder: Path, recipe: Recipe, sites: Mapping[str, Sequence[str]], **differences: Any
    ) -> None:
        self._sites = sites
        self._folder = folder
        signed = bool(differences.get("signed"))
        self._addresses: dict[str, Address] = {}
        self._trusts: dict[str, Trust] = {}
        self._brokers: dict[str, BrokerProcess] = {}
        self.links: dict[str, FaultyLink] = {}
        for gateway, devices in sites.items():
            self._addresses[gateway] = Address(
                LOOPBACK, free_ports() if signed else free_port(), tls=signed
            )
            if signed:
                port, site = self._addresses[gateway].port, self.site(gateway)
                trust = Trust(folder / "state" / "trust" / site, port, site)
                trust.issue("coordinator")
                for device in devices:
                    trust.issue("device", device)
                self._trusts[gateway] = trust
            self._brokers[gateway] = self._start_site_broker(gateway)
        super().__init__(folder, recipe, **differences)
        for gateway in sites:
            if self.trust is not None:
                self.trust.issue("gateway", gateway)
            self.links[gateway] = FaultyLink(self.address.port, down=DOWN, up=UP)
            self.start(gateway)

    def site(self, gateway: str) -> str:
        """Return the name of a gateway's fleet downstream."""
        return f"site-{gateway}"

    def start(self, name: str) -> None:
        """Start a part; ``broker-GATEWAY`` is the broker of a site."""
        gateway = name.removeprefix("broker-")
        if name != gateway:
            self._brokers[gateway] = self._start_site_broker(gateway)
        else:
            super().start(name)

    def kill(self, name: str) -> None:
        """End a part with SIGKILL."""
        gateway = name.removeprefix("broker-")
        if name == gateway:
            super().kill(name)
            return
        broker = self._brokers[gateway]
        os.kill(broker.pid, signal.SIGKILL)
        wait_until(lambda: not broker.is_running(), "the end of a site's broker")
        broker.stop()

    def close(self) -> None:
        """End everything."""
        super().close()
        for link in self.links.values():
            link.close()
        for broker in self._brokers.values():
            broker.stop()

    def _start_site_broker(self, gateway: str) -> BrokerProcess:
        folder = self._folder / f"mosquitto-{gateway}"
        if gateway in self._trusts:
            return SignedBroker(folder, self._trusts[gateway])
        return MosquittoBroker(self._addresses[gateway], folder)

    def _command(self, name: str) -> list[str]:
        for gateway, devices in self._sites.items():
            broker = str(self._addresses[gateway])
            common = ["--no-config", "--fleet", self.site(gateway)]
            common += ["--state", str(self._folder / "state"), "--broker", broker]
            if name == gateway:
                link = f"{self.address.scheme}://{LOOPBACK}:{self.links[gateway].port}"
                own = ["--upstream", link, "--upstream-fleet", FLEET, "--name", gateway]
                return ["edgefed.cli.main", *common, "gateway", "run", *own]
            if name in devices:
                own = ["--name", name, "--data", self._sources[name], "--holdout", "0.0"]
                return [self._agent, "run", *common, *own]
        return super()._command(name)


@contextmanager
def sites(
    folder: Path, recipe: Recipe, of: Mapping[str, Sequence[str]], **differences: Any
) -> Iterator[SiteProcesses]:
    """A fleet with gateways that is ended with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    built = SiteProcesses(folder, recipe, of, **differences)
    try:
        yield built
    finally:
        built.close()

"""A fleet of real processes in which every part has a link, a disk and a clock of its own."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import ssl
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.chaos.schedule import BROKER, COORDINATOR, read_by_links
from broker.address import LOOPBACK
from broker.broker_interface import BrokerProcess
from broker.mosquitto import MosquittoBroker, find_mosquitto
from broker.secured_broker import SecuredBroker
from broker.secured_files import secured_files
from edgefed.algorithms.composed.evaluation_place import holdout_of
from edgefed.algorithms.composed.registry import make
from edgefed.config.recipes.recipe import Recipe
from edgefed.process.clock import SystemClock
from edgefed.simulator.local_fleet import device_names
from edgefed.trust.credentials import AUTHORITY, CERTIFICATE, KEY, load_credentials
from tests.faults.faulty_link import FaultyLink, TlsEnds
from tests.faults.filled_disk import Filler
from tests.faults.fleet_processes import FLEET, FleetProcesses
from tests.faults.shifted_clock import ShiftedClocks
from tests.programs.forked_programs import ForkedProgram
from tests.programs.recording_agent import VARIABLE as TRAININGS

DOWN, UP = 20e6, 8e6
"""Bytes per second of each link without faults."""

DISK = "48m"


@dataclass(frozen=True)
class Means:
    """What this machine allows.

    Attributes:
        disks: whether disks can be mounted, which this process alone sees.
        clocks: of the programs; None where they cannot be shifted.
    """

    disks: bool
    clocks: ShiftedClocks | None


class ChaosFleet(FleetProcesses):
    """Mosquitto, a coordinator and agents that record their trainings, each behind its own link.

    Args:
        folder: of their state and logs; it exists.
        recipe: deals out the data.
        settings: of agents, by device.
        means: what this machine allows.
        seed: of what the links do to messages.
        tls: whether the parties have certificates: connections use mutual TLS, and messages are
            signed.
    """

    def __init__(
        self,
        folder: Path,
        recipe: Recipe,
        settings: Mapping[str, Mapping[str, str]],
        means: Means,
        seed: int,
        *,
        tls: bool,
    ) -> None:
        self._means = means
        self._seed = seed
        self.links: dict[str, FaultyLink] = {}
        self._fillers: dict[str, Filler] = {}
        self._starting = threading.Lock()
        self.devices_named = device_names(recipe.simulation.devices)
        if means.clocks is not None:
            # Programs are forked from a process that has to have the library.
            os.environ["LD_PRELOAD"] = str(means.clocks.library)
        super().__init__(
            folder,
            recipe,
            settings=settings,
            agent="tests.programs.recording_agent",
            holdout=holdout_of(recipe, make(recipe)),
            signed=tls,
            ruled=tls,
        )

    # -- processes ----------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start a part that is not running."""
        with self._starting:
            if name == BROKER:
                self.broker = self._start_broker()
                return
            if name not in self.links:
                self._mount(name)
                self.links[name] = self._link(name)
            log = self.folder / f"{name}.log"
            self.processes[name] = ForkedProgram(self._command(name), self._environment(name), log)

    def ended(self) -> list[str]:
        """Return the programs that do not run."""
        return [name for name, program in self.processes.items() if program.poll() is not None]

    def restart_broker(self) -> None:
        """End the broker as a system does, so that it keeps its retained messages."""
        self.broker.stop()

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a part a signal, unless it has ended by itself."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.broker.pid if name == BROKER else self.processes[name].pid, number)

    def close(self) -> None:
        """End everything."""
        for link in self.links.values():
            link.close()
        super().close()
        for name in self.links if self._means.disks else ():
            # What is on a disk is gone with this process, and may tell what went wrong.
            shutil.copytree(self.disk(name), self.folder / "kept" / name)
            subprocess.run(["umount", "-l", str(self.disk(name))], check=False)

    def trainings(self, device: str) -> Path:
        """Return the file in which a device records its trainings."""
        return self.folder / f"{device}.trainings"

    # -- faults -------------------------------------------------------------------------------

    def fill(self, name: str) -> None:
        """Fill a part's disk."""
        self._fillers[name] = Filler(self.disk(name) / "ballast")

    def release(self, name: str) -> None:
        """Give the room on a part's disk back."""
        self._fillers.pop(name).stop()

    def jump(self, name: str, seconds: int) -> None:
        """Let a part's wall clock differ from the machine's."""
        assert self._means.clocks is not None
        self._means.clocks.jump(name, seconds)

    def disk(self, name: str) -> Path:
        """Return the disk of a part's state."""
        return self.folder / "disks" / name

    # -- parts --------------------------------------------------------------------------------

    def _link(self, name: str) -> FaultyLink:
        """Return the link of a part; one that knows encrypted messages is an end of TLS itself."""
        rng, tls = random.Random(f"{self._seed} {name}"), None
        reads = name == COORDINATOR or name in read_by_links(self.devices_named)
        if self.trust is not None:
            own = self.trust.folder / name
            shutil.copytree(own, self.disk(name) / "trust" / FLEET / name)
            tls = tls_ends(self.trust.folder / "broker", own) if reads else None
        beside = self.address.for_commands().port - self.address.port
        return FaultyLink(
            self.address.port, down=DOWN, up=UP, reads=reads, tls=tls, beside=beside, rng=rng
        )

    def _mount(self, name: str) -> None:
        self.disk(name).mkdir(parents=True)
        if self._means.disks:
            mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(self.disk(name))]
            subprocess.run(mount, check=True)

    def _environment(self, name: str) -> dict[str, str]:
        clocks = self._means.clocks
        return {
            **{k: v for k, v in os.environ.items() if not k.startswith("EDGEFED_")},
            **{f"EDGEFED_{k.upper()}": v for k, v in self._settings.get(name, {}).items()},
            **(clocks.environment(name) if clocks is not None else {}),
            TRAININGS: str(self.trainings(name)),
        }

    def _command(self, name: str) -> list[str]:
        words = super()._command(name)
        words[words.index("--state") + 1] = str(self.disk(name))
        words[words.index("--broker") + 1] = (
            f"{self.address.scheme}://{LOOPBACK}:{self.links[name].port}"
        )
        return words

    def _start_broker(self) -> BrokerProcess:
        if self.trust is not None:
            if BROKER not in self.trust.parties:
                self.trust.issue("broker")
            self.trust.write_access()
            folder, files = self.folder / "mosquitto", secured_files(self.trust.folder)
            return SecuredBroker(self.address, folder, files, program=self._program())
        return MosquittoBroker(self.address, self.folder / "mosquitto", program=self._program())

    def _program(self) -> Path | None:
        """Return Mosquitto, with a clock of its own where clocks can be shifted."""
        program, clocks = find_mosquitto(), self._means.clocks
        if clocks is None or program is None:
            return program
        words = [f"{key}={value}" for key, value in clocks.environment(BROKER).items()]
        script = self.folder / "mosquitto.sh"
        script.write_text(f'#!/bin/sh\nexec env {" ".join(words)} {program} "$@"\n')
        script.chmod(0o755)
        return script


def tls_ends(broker: Path, party: Path) -> TlsEnds:
    """Return the ends of a link that is the broker to a party, and the party to the broker.

    Args:
        broker: the folder of the broker's credentials.
        party: the folder of the party's.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(broker / CERTIFICATE, broker / KEY)
    server.load_verify_locations(broker / AUTHORITY)
    server.verify_mode = ssl.CERT_REQUIRED
    return TlsEnds(server, load_credentials(party, SystemClock().now()).tls_context())


def store_of(fleet: ChaosFleet, device: str) -> Path:
    """Return the state directory of a device."""
    return fleet.disk(device) / "agents" / FLEET / device

"""Machines of a test: network namespaces, each with a file system and linked to the first."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from broker.child_process import ending_with_parent
from tests.processes import PATIENCE
from tests.programs.launched_programs import scripts

NETWORK = "192.0.2"
_TOOLS = ("ip", "unshare", "nsenter", "mount")


@dataclass
class Machine:
    """One machine: what its namespaces contain ends with it.

    Attributes:
        name: of the machine.
        address: its IPv4 address.
        home: a folder of its own file system; other machines have another under this path.
        first: its first process, which holds the namespaces.
        programs: the folder with our commands.
    """

    name: str
    address: str
    home: Path
    first: subprocess.Popen[bytes]
    programs: Path
    _services: list[tuple[subprocess.Popen[bytes], Path]] = field(default_factory=list)

    def run(self, command: str) -> str:
        """Run a shell command and return what it printed on stdout and stderr."""
        told = subprocess.run(
            self.command(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert told.returncode == 0, f"{self.name}$ {command}\n{told.stdout}{told.stderr}"
        return told.stdout + told.stderr

    def serve(self, command: str, until: str, logs: Path) -> str:
        """Start a command that stays, and return what it said until it said ``until``."""
        log = logs / f"{self.name}-{len(self._services)}.log"
        with log.open("wb") as out:
            service = subprocess.Popen(
                ending_with_parent(self.command(f"exec {command}"), signal.SIGKILL),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        self._services.append((service, log))
        ends = time.monotonic() + PATIENCE
        while until not in log.read_text():
            assert service.poll() is None, f"{self.name}$ {command}\n{log.read_text()}"
            assert time.monotonic() < ends, f"{self.name}$ {command}: not up\n{log.read_text()}"
            time.sleep(0.1)
        return log.read_text()

    def command(self, command: str) -> list[str]:
        """Return the words that run a shell command inside, with nothing of our environment."""
        path = f"PATH={self.programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = [f"HOME={self.home}", path, "COLUMNS=200", "LANG=C.UTF-8"]
        inside = [shutil.which("nsenter") or "", "-t", str(self.first.pid), "-n", "-m", "--"]
        return [*inside, "env", "-i", *environment, "sh", "-c", f"cd {self.home} && {command}"]

    def said(self) -> str:
        """Return what its services have said."""
        return "\n".join(log.read_text() for _, log in self._services)

    def stop(self) -> None:
        """End its services, the last one first, and then the machine."""
        for service, _ in reversed(self._services):
            service.terminate()
        for service, _ in self._services:
            service.wait(PATIENCE)
        self.first.kill()
        self.first.wait(PATIENCE)


def missing() -> str:
    """Return why this computer can have no such machines; empty when it can."""
    absent = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if absent:
        return f"{', '.join(absent)} is not installed"
    if os.geteuid() != 0:
        return "namespaces need root"
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "ip", "link", "add", "name", "port0", "type", "veth"],
        capture_output=True,
        check=False,
    )
    return (
        ""
        if tried.returncode == 0
        else "this system has no network namespaces or pairs of interfaces"
    )


@contextmanager
def machines(names: Sequence[str], disk: Path, *, first: int) -> Iterator[list[Machine]]:
    """Start machines whose addresses count up; each of the others is linked to the first.

    Args:
        names: of the machines.
        disk: where each mounts a file system of its own.
        first: last number of the first one's address.
    """
    disk.mkdir()
    programs = disk.with_name("programs")
    programs.mkdir()
    with ExitStack() as stack:
        made: list[Machine] = []
        for number, name in enumerate(names, first):
            machine = _start(name, f"{NETWORK}.{number}", disk, scripts(programs))
            stack.callback(machine.stop)
            made.append(machine)
        _join(made)
        yield made


def _start(name: str, address: str, disk: Path, programs: Path) -> Machine:
    home = disk / "home"
    setup = f"mount -t tmpfs none {disk} && mkdir {home} && ip link set lo up && exec sleep inf"
    space = [
        shutil.which("unshare") or "",
        "--net",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        setup,
    ]
    first = subprocess.Popen(ending_with_parent(space, signal.SIGKILL))
    machine = Machine(name, address, home, first, programs)
    ends = time.monotonic() + PATIENCE
    while subprocess.run(
        machine.command("ip link show lo | grep -q UP"), check=False, capture_output=True
    ).returncode:
        assert first.poll() is None, f"machine {name} does not start"
        assert time.monotonic() < ends, f"machine {name} does not start"
        time.sleep(0.05)
    return machine


def _join(made: list[Machine]) -> None:
    hub = made[0]
    for number, machine in enumerate(made[1:]):
        port = f"port{number}"
        hub.run(f"ip link add name {port} type veth peer name eth0 netns {machine.first.pid}")
        hub.run(f"ip address add {hub.address}/32 dev {port} && ip link set {port} up")
        hub.run(f"ip route add {machine.address}/32 dev {port} src {hub.address}")
        machine.run(f"ip address add {machine.address}/24 dev eth0 && ip link set eth0 up")

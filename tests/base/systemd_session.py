"""Run under a private systemd: install a service that hangs once, see it restarted, remove it.

Started by ``test_service_unit.py`` as root in a mount namespace of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from edgefed.process.clock import SystemClock
from edgefed.process.installed_service import ServiceStatus, Systemd
from edgefed.process.service_unit import ServiceUnit, sealed

PROGRAM = """
import os, signal, sys, time
from edgefed.process.clock import SystemClock
from edgefed.process.service_manager import ServiceManager
clock = SystemClock()
manager = ServiceManager(os.environ, clock)
manager.ready()
first = not os.path.exists(sys.argv[1])
open(sys.argv[1], "w").write(sys.argv[2])
while True:
    if not first:
        manager.due(time.monotonic())
    time.sleep(0.1)
"""


def until(systemd: Systemd, holds: Callable[[ServiceStatus], bool]) -> ServiceStatus:
    """Return the first status for which a condition holds."""
    for _ in range(200):
        state = systemd.status("edgefed-agent.service")
        if holds(state):
            return state
        time.sleep(0.1)
    raise AssertionError(state)


def main(folder: Path) -> None:
    """Print what the service manager shows of the service at each step."""
    systemd = Systemd(SystemClock(), os.environ, user=True)
    (folder / "program.py").write_text(PROGRAM)
    word = 'a "quoted" ${HOME} %h\\ word'
    command = (sys.executable, str(folder / "program.py"), str(folder / "started"), word)
    unit = ServiceUnit(
        "agent",
        command,
        "edgefed-agent.service",
        run_as="",
        memory="500M",
        watchdog=1,
        systemd=systemd.version(),
    )
    text = sealed(unit.text().replace("RestartSec=5", "RestartSec=0"), "edgefed-agent")
    text += f"# {folder}\n"
    systemd.install(unit.name, text, force=False, start=True)
    started = until(systemd, lambda state: state.active)
    restarted = until(systemd, lambda state: state.restarts >= 1 and state.active)
    limit = subprocess.run(
        ["systemctl", "--user", "show", unit.name, "--property=MemoryMax", "--value"],
        capture_output=True,
        text=True,
        check=True,
    )
    systemd.uninstall(unit.name, force=True)
    removed = systemd.status(unit.name)
    shown = {"started": started, "restarted": restarted, "removed": removed}
    answer = {name: asdict(state) for name, state in shown.items()}
    word_there = (folder / "started").read_text() == word
    left = [path.name for path in systemd.units.rglob("*")]
    shown_last = {"word": word_there, "memory": limit.stdout.strip(), "left": left}
    sys.stdout.write(json.dumps({**answer, **shown_last}))


if __name__ == "__main__":
    manager = subprocess.Popen(["/lib/systemd/systemd", "--user"], stderr=subprocess.DEVNULL)
    try:
        while subprocess.run(
            ["systemctl", "--user", "is-system-running"], capture_output=True, check=False
        ).stdout.strip() in (b"", b"offline", b"unknown"):
            time.sleep(0.05)
        main(Path(sys.argv[1]))
    finally:
        manager.terminate()
        manager.wait()

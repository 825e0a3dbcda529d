"""A board with an updater, in a folder; its agents are tiny real wheels."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from broker.child_process import ending_with_parent
from device_agent.updater.disk import digest_of, keep, read_json, write_json
from device_agent.updater.slots import Slots
from device_agent.updater.state import TrialLimits, UpdaterSettings
from tests.processes import clean_environment
from tests.updates.wheels import Publisher, make_wheel

AGENT = (Path(__file__).parent / "fake_agent.py").read_text()
PATIENCE = 240.0
LIMITS = TrialLimits(start=60.0, probe=60.0, connect=1.0, stay=0.15, silence=60.0)


def agent_files(mode: str = "good") -> dict[str, str]:
    """Return the modules of a wheel whose agent breaks something."""
    entry = AGENT.replace('MODE = "good"', f'MODE = "{mode}"')
    return {"device_agent/__init__.py": "", "device_agent/entry.py": entry}


class Board:
    """A board whose first version is in the slot ``old``.

    Attributes:
        folder: the agent's state.
        home: the updater's.
    """

    def __init__(self, folder: Path, publisher: Publisher) -> None:
        self.folder, self.home = folder / "agent", folder / "updates"
        self.publisher = publisher
        (self.folder / "blobs").mkdir(parents=True)
        (self.folder / "agent.db").write_text("old tables")
        (self.folder / "blobs" / "state").write_text("private state")
        (self.folder / "models").mkdir()
        (self.folder / "models" / "current").write_text("a model")
        self.home.mkdir()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port = self._listener.getsockname()[1]
        self.set_broker(True)
        self._process: subprocess.Popen[str] | None = None

    def set_broker(self, there: bool) -> None:
        """Have the broker answer, or not."""
        if there:
            (self.home / "broker").touch()
        else:
            (self.home / "broker").unlink(missing_ok=True)
            self._listener.close()

    def install_old(self) -> None:
        """Install the first version."""
        wheel = make_wheel(self.home.parent / "first", "edgefed", "0.1.0", agent_files())
        digest = digest_of(wheel)
        slots = Slots(self.home)
        lock = wheel.with_suffix(".txt")
        lock.write_text(f"edgefed==0.1.0 --hash=sha256:{digest}\n")
        wheels = {wheel.name: digest, "lock.txt": digest_of(lock)}
        for path in (wheel, lock):
            slots.store(path, digest_of(path))
        pip = slots.install("old", wheels)
        assert pip.communicate()[1] is not None and pip.returncode == 0
        slots.complete("old", wheels)
        (self.home / "state.json").write_text(json.dumps({"current": "old", "number": 1}))

    def prepare(self, release: str, mode: str) -> None:
        """Have a release installed already, which saves the time of pip."""
        (lock,) = self.publisher.folder.glob(f"targets/releases/*.{release}.txt")
        digests = sorted([digest_of(lock), lock.read_text().split("sha256:")[1].strip()])
        slot = self.home / "slots" / release
        shutil.copytree(self.home / "slots" / "old", slot, symlinks=True)
        (entry,) = slot.glob("lib/python*/site-packages/device_agent/entry.py")
        entry.write_text(agent_files(mode)["device_agent/entry.py"])
        (slot / "complete").write_text("\n".join(digests))

    def settings(self, **changes: Any) -> UpdaterSettings:
        """Return the owner's settings."""
        values: dict[str, Any] = {
            "home": self.home,
            "folder": self.folder,
            "root": self.publisher.root,
            "mode": "auto",
            "hours": "",
            "host": "127.0.0.1",
            "port": self._port,
            "words": (str(self.folder),),
            "limits": LIMITS,
        }
        return UpdaterSettings(**{**values, **changes})

    def offer(self, release: str, *, identity: str = "", during_run: bool = False) -> None:
        """Offer a release, with all that a coordinator sends for it."""
        metadata = (self.publisher.folder / "metadata").iterdir()
        digests = {path.name: self.receive(path) for path in metadata}
        for path in self.publisher.folder.glob("targets/*/*"):
            self.receive(path)
        offer = {"id": identity or release, "release": release, "metadata": digests}
        write_json(self.home / "offer.json", {**offer, "during_run": during_run})

    def receive(self, path: Path) -> str:
        """Put a file where the agent puts received blobs."""
        digest = digest_of(path)
        keep(path, self.home / "incoming" / "blobs" / digest)
        return digest

    def start(self, **changes: Any) -> None:
        """Start the updater."""
        plain = json.dumps(asdict(self.settings(**changes)), default=str)
        words = [sys.executable, "-m", "device_agent.updater", plain]
        self._process = subprocess.Popen(
            ending_with_parent(words, signal.SIGKILL), env=clean_environment(), text=True
        )

    def stop(self) -> None:
        """End the updater, as by the service manager."""
        if self._process is not None:
            self._process.terminate()
            assert self._process.wait(PATIENCE) == 0
            self._process = None

    def close(self) -> None:
        """End everything."""
        self.stop()
        self._listener.close()

    @property
    def state(self) -> dict[str, Any]:
        return read_json(self.home / "state.json")

    def wait(self, *words: str) -> dict[str, Any]:
        """Wait until the updater gives an outcome that has these words, and return the state."""

        def has_ended(state: dict[str, Any]) -> bool:
            said = str(state.get("reason"))
            return state.get("phase") == "idle" and all(word in said for word in words)

        return self.until(has_ended)

    def until(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until the stored state is as a test wants it."""
        end = time.monotonic() + PATIENCE
        while not ((state := self.state) and holds(state)):
            assert time.monotonic() < end, state
            time.sleep(0.02)
        return state

    def wait_without(self, slot: str) -> None:
        """Wait until a slot is deleted."""
        self.until(lambda _: not (self.home / "slots" / slot).exists())

    def started(self) -> list[str]:
        """Return the slots from which agents were started, first ones first."""
        path = self.folder / "started"
        return path.read_text().split() if path.exists() else []

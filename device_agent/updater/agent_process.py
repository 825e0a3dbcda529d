"""The agent as a child of the updater: start it from a slot, pass its log on, and end it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from broker import parent_death

HOME = "EDGEFED_UPDATER"
"""Variable that tells an agent that an updater started it: the updater's folder."""

END_SECONDS = 30.0
"""Seconds that an agent has to end by itself."""


@dataclass(frozen=True)
class SignsOfLife:
    """The content of ``HOME/agent.json``, which an agent writes.

    Attributes:
        beat: changes at least every few seconds.
        store: whether it has opened its store.
        probe: whether it has trained the probe task.
        connected: whether it is connected to the broker.
        quiet: whether neither a run nor a task is at work.
        problem: why it cannot work; empty for nothing.
    """

    beat: int = 0
    store: bool = False
    probe: bool = False
    connected: bool = False
    quiet: bool = False
    problem: str = ""


class AgentProcess:
    """Runs one agent after another.

    Args:
        home: the updater's folder.
        words: arguments of ``edgefed-agent``.
    """

    def __init__(self, home: Path, words: Sequence[str]) -> None:
        self._home = home
        self._words = words
        self._process: subprocess.Popen[str] | None = None
        self._lines: deque[str] = deque(maxlen=3)

    def start(self, python: Path) -> None:
        """Start the agent of a slot; on Linux it ends with this process."""
        environment = {**os.environ, HOME: str(self._home)}
        for name in ("PYTHONPATH", "PYTHONHOME", "WATCHDOG_PID"):  # of this process alone
            environment.pop(name, None)
        words = [str(python), "-m", "device_agent.entry", *self._words]
        if sys.platform.startswith("linux"):
            script = [sys.executable, "-I", str(parent_death.__file__), str(os.getpid())]
            words = [*script, str(int(signal.SIGKILL)), "0", "0", *words]
        self._lines.clear()
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
            cwd="/",
        )
        threading.Thread(target=self._pass_on, args=(self._process,), daemon=True).start()

    @property
    def started(self) -> bool:
        """Whether there is a process, also one that has ended and was not yet ``stop``ped."""
        return self._process is not None

    def code(self) -> int | None:
        """Return the exit code; None while it runs."""
        return None if self._process is None else self._process.poll()

    @property
    def last_line(self) -> str:
        """The last line of its log."""
        return self._lines[-1] if self._lines else ""

    def signs(self) -> SignsOfLife:
        """Return its last signs of life; none of an earlier process."""
        try:
            read = json.loads((self._home / "agent.json").read_bytes())
            if self._process is None or read.pop("pid") != self._process.pid:
                return SignsOfLife()
            known = {name: read[name] for name in SignsOfLife.__annotations__ if name in read}
            return SignsOfLife(**known)
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return SignsOfLife()

    def ask_to_end(self) -> None:
        """Send SIGTERM."""
        if self._process is not None:
            self._process.terminate()

    def stop(self) -> int:
        """End the process and return its exit code."""
        if self._process is None:
            return 0
        self.ask_to_end()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        code, self._process = self._process.wait(), None
        time.sleep(0.05)  # its last lines
        return code

    def _pass_on(self, process: subprocess.Popen[str]) -> None:
        for line in process.stderr or ():
            sys.stderr.write(line)
            sys.stderr.flush()
            if line.strip():
                self._lines.append(line.strip()[:300])

"""A program in a terminal that tests type into and read, kept by tmux."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

PATIENCE = 60.0
"""Seconds after which a wait has failed."""

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Terminal:
    """A tmux server of its own with one program in it.

    Args:
        socket: where the server listens.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def press(self, *keys: str) -> None:
        """Press keys, as tmux names them."""
        self._tmux("send-keys", *keys)

    def write(self, text: str) -> None:
        """Type a text."""
        self._tmux("send-keys", "-l", text)

    def resize(self, columns: int, lines: int) -> None:
        """Give the terminal another size."""
        self._tmux("resize-window", "-x", str(columns), "-y", str(lines))

    def screen(self) -> str:
        """Return every character on the screen."""
        return self._tmux("capture-pane", "-p")

    def until(self, condition: Callable[[str], object]) -> str:
        """Wait until the screen fulfils a condition, and return it."""
        ends = time.monotonic() + PATIENCE
        while True:
            text = self.screen()
            if condition(text):
                return text
            assert time.monotonic() < ends, f"the screen never was as awaited:\n{text}"
            time.sleep(0.2)  # tmux is a process each time

    def shows(self, *parts: str) -> str:
        """Wait until all parts are on the screen, and return it."""
        return self.until(lambda text: all(part in text for part in parts))

    def ended(self) -> int:
        """Wait until the program has ended, and return its exit code."""
        ends = time.monotonic() + PATIENCE
        while True:
            asked = "#{pane_dead},#{pane_dead_status},#{pid}"
            dead, status, server = self._tmux("display-message", "-p", asked).strip().split(",")
            if dead == "1" and status:
                return int(status)
            if dead == "1":  # tmux 3.3 may miss the signal that the program has ended
                os.kill(int(server), signal.SIGCHLD)
            assert time.monotonic() < ends, f"it goes on:\n{self.screen()}"
            time.sleep(0.05)

    def _tmux(self, *words: str) -> str:
        command = ["tmux", "-S", str(self._socket), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout


@contextmanager
def terminal(
    folder: Path,
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    columns: int = 120,
    lines: int = 36,
) -> Iterator[Terminal]:
    """Run a command in a folder and a terminal, which stays for a look when it has ended."""
    socket = folder / "tmux"
    kept = {
        key: text for key, text in os.environ.items() if not key.startswith(("EDGEFED_", "TMUX"))
    }
    size = ["-x", str(columns), "-y", str(lines), "-c", str(folder)]
    stay = ["set-option", "-g", "remain-on-exit", "on"]
    server = ["tmux", "-S", str(socket), "-f", os.devnull]
    subprocess.run(
        [*server, "new-session", "-d", *size, "--", *command, ";", *stay],
        env={**kept, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **environment},
        check=True,
    )
    try:
        yield Terminal(socket)
    finally:
        subprocess.run([*server, "kill-server"], check=False, capture_output=True)

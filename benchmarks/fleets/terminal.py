"""The dashboard in a terminal of its own, whose screen a measurement may read."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from edgefed.config.values.address import Address
from tests.support.terminal_screen import TerminalScreen

CHUNK = 65536

TICK = 0.02
"""Seconds between two reads over a slow link."""


class Terminal:
    """A program in a pseudo-terminal, which is read in a thread of its own.

    Args:
        process: the program.
        keyboard: file descriptor of the terminal's other side.
        screen: what the terminal shows.

    Attributes:
        bytes: how many the program has written.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], keyboard: int, screen: TerminalScreen
    ) -> None:
        self.process = process
        self.bytes = 0
        self._keyboard = keyboard
        self._screen = screen
        self._lock = threading.Lock()

    def press(self, keys: str) -> None:
        """Type keys."""
        os.write(self._keyboard, keys.encode())

    def text(self) -> str:
        """Return every character on the screen."""
        with self._lock:
            return self._screen.text()

    def until(self, *parts: str, patience: float = 60.0) -> float:
        """Wait until all parts are on the screen; return the seconds that it took.

        Raises:
            RuntimeError: they do not appear in time.
        """
        began = time.monotonic()
        while not all(part in (text := self.text()) for part in parts):
            if time.monotonic() - began > patience:
                raise RuntimeError(f"The screen lacks {parts}:\n{text}")
            time.sleep(0.01)
        return time.monotonic() - began

    def read(self, rate: float, answers: bool, on_change: Callable[[str], None] | None) -> None:
        """Take what the program writes until it ends: ``rate`` bytes a second, 0 for all."""
        with suppress(OSError):  # the dashboard has ended
            while output := os.read(self._keyboard, int(rate * TICK) or CHUNK):
                with self._lock:
                    self.bytes += len(output)
                    answer = self._screen.take(output)
                if answer and answers:
                    os.write(self._keyboard, answer)
                if on_change is not None:
                    on_change(self.text())
                if rate:
                    time.sleep(len(output) / rate)


@contextmanager
def dashboard(address: Address, fleet: str, state: Path, **terminal: Any) -> Iterator[Terminal]:
    """Show the dashboard of a fleet.

    Args:
        address: the broker's.
        fleet: the fleet's name.
        state: folder of the dashboard's own state.
        terminal: arguments of ``edgefed_in_terminal``.
    """
    words = ["--no-config", "--fleet", fleet, "--state", str(state), "ui", "--read-only"]
    with edgefed_in_terminal(words, {"EDGEFED_BROKER": str(address)}, **terminal) as shown:
        yield shown


@contextmanager
def edgefed_in_terminal(
    words: Sequence[str],
    environment: Mapping[str, str],
    *,
    size: tuple[int, int] = (140, 40),
    rate: float = 0.0,
    answers: bool = True,
    on_change: Callable[[str], None] | None = None,
) -> Iterator[Terminal]:
    """Run a command of EdgeFed.

    Args:
        words: the command line.
        environment: variables beside those of this process without EdgeFed's.
        size: columns and lines.
        rate: bytes in a second that the terminal takes; 0 for all.
        answers: whether the terminal answers questions about its cursor, as almost all do.
        on_change: takes the screen's text after each change, in a thread of its own.
    """
    ours, its = pty.openpty()
    columns, lines = size
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    kept = {key: text for key, text in os.environ.items() if not key.startswith("EDGEFED_")}
    shown = subprocess.Popen(
        [sys.executable, "-m", "edgefed.cli.main", *words],
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
        env={**kept, "TERM": "xterm-256color", **environment},
    )
    os.close(its)
    terminal = Terminal(shown, ours, TerminalScreen(columns, lines))
    reading = (rate, answers, on_change)
    threading.Thread(target=terminal.read, args=reading, daemon=True).start()
    try:
        yield terminal
    finally:
        shown.kill()
        shown.wait()

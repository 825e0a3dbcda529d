"""The dashboard in a terminal of its own, whose output a measurement may read."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from edgefed.config.values.address import Address

CHUNK = 65536


@dataclass
class Terminal:
    """A program in a pseudo-terminal.

    Attributes:
        process: the program.
        keyboard: file descriptor of the terminal's other side.
    """

    process: subprocess.Popen[bytes]
    keyboard: int

    def press(self, keys: str) -> None:
        """Type keys."""
        os.write(self.keyboard, keys.encode())


@contextmanager
def dashboard(
    address: Address,
    fleet: str,
    state: Path,
    *,
    size: tuple[int, int] = (140, 40),
    on_output: Callable[[bytes], None] = lambda output: None,
) -> Iterator[Terminal]:
    """Show the dashboard of a fleet.

    Args:
        address: the broker's.
        fleet: the fleet's name.
        state: folder of the dashboard's own state.
        size: columns and lines.
        on_output: takes what the program writes, in a thread of its own.
    """
    ours, its = pty.openpty()
    columns, lines = size
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    words = ["--no-config", "--fleet", fleet, "--state", str(state), "ui", "--read-only"]
    kept = {key: text for key, text in os.environ.items() if not key.startswith("EDGEFED_")}
    shown = subprocess.Popen(
        [sys.executable, "-m", "edgefed.cli.main", *words],
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
        env={**kept, "TERM": "xterm-256color", "EDGEFED_BROKER": str(address)},
    )
    os.close(its)
    threading.Thread(target=_read, args=(ours, on_output), daemon=True).start()
    try:
        yield Terminal(shown, ours)
    finally:
        shown.kill()
        shown.wait()


def _read(terminal: int, on_output: Callable[[bytes], None]) -> None:
    with suppress(OSError):  # the dashboard has ended
        while output := os.read(terminal, CHUNK):
            on_output(output)

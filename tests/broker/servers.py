"""Mosquitto with a configuration of the test's own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from broker.child_process import ChildProcess, wait_until_accepting
from broker.mosquitto import find_mosquitto
from edgefed.config.values.address import Address

USER = "root" if os.geteuid() == 0 else ""
"""Mosquitto started as root becomes this user, who can read a test's folder."""


@contextmanager
def running(text: str, address: Address, folder: Path) -> Iterator[None]:
    """Run Mosquitto with the configuration ``text``, which listens on ``address``."""
    file = folder / "test.conf"
    file.write_text(text)
    child = ChildProcess(
        [str(find_mosquitto()), "-c", str(file)], folder=folder, log=folder / "log"
    )
    try:
        wait_until_accepting(child, address)
        yield
    finally:
        child.stop()

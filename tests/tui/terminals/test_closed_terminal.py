"""The dashboard in a terminal that is closed without SIGHUP, as under nohup."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.tui.recorded_fleet import record

pytestmark = pytest.mark.slow


def test_it_ends_by_itself(tmp_path: Path) -> None:
    path = record(tmp_path / "events.jsonl")
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 36, 120, 0, 0))
    words = ["--no-config", "--state", str(tmp_path), "ui", "--replay", str(path)]
    shown = subprocess.Popen(
        [sys.executable, "-m", "edgefed.cli.main", *words],
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,  # and no controlling terminal, so that nobody sends SIGHUP
        env={**os.environ, "TERM": "xterm-256color"},
    )
    os.close(its)
    try:
        ends, output = time.monotonic() + 60, b""
        while b"Events" not in output:
            assert time.monotonic() < ends
            output += os.read(ours, 65536)
        os.close(ours)
        shown.wait(20)
    finally:
        shown.kill()
        shown.wait()

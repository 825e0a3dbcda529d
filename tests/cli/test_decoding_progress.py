"""A terminal shows how far a folder of images is decoded; a log tells it in lines."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

from tests.data.images.test_image_cache import photos


def agent_data(tmp_path: Path, stderr: int) -> subprocess.CompletedProcess[bytes]:
    source = f"folder:{photos(tmp_path / 'photos', 40)}"
    start = [sys.executable, "-c", "from device_agent.entry import main; main()"]
    command = [*start, "data", "--data", source, "--state", str(tmp_path / "state")]
    environment = {**os.environ, "TERM": "xterm"}
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=stderr, check=True, env=environment
    )


def test_a_terminal_shows_a_bar(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    done = agent_data(tmp_path, theirs)
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert "\r\x1b[Kdecoding images " in shown and " 40/40" in shown
    assert "\n" not in shown and shown.endswith("\r\x1b[K")
    assert b"decoding" not in done.stdout and b"36 to train on" in done.stdout
    assert list((tmp_path / "state" / "data" / "decoded").glob("images-*/pixels-*"))


def test_a_file_of_stderr_has_no_bar(tmp_path: Path) -> None:
    with (tmp_path / "stderr").open("wb") as file:
        agent_data(tmp_path, file.fileno())
    assert (tmp_path / "stderr").read_bytes() == b""


def test_an_agent_logs_each_tenth(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from edgefed.terminal.logs import start_log\n"
        "from edgefed.data.devices.sources import load_device\n"
        "start_log()\n"
        "load_device(sys.argv[1], 0.1, Path(sys.argv[2]))\n"
    )
    source = f"folder:{photos(tmp_path / 'photos', 100)}"
    command = [sys.executable, "-c", code, source, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line.split("INFO ")[1] for line in done.stderr.splitlines()]
    assert lines == [f"decoding images: {number} of 100" for number in range(0, 101, 10)]

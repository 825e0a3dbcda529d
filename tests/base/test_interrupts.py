"""The tests can be started where Ctrl-C is ignored: their own programs still take it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROBE = """
import subprocess, sys

ASK = "import signal; print(signal.getsignal(signal.SIGINT) == signal.default_int_handler)"

def test_a_program_takes_ctrl_c():
    told = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    assert told.stdout == "True\\n"
"""


def test_programs_take_ctrl_c_though_it_is_ignored_around_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_probe.py").write_text(PROBE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", str(tmp_path)]
    shell = 'trap "" INT; exec "$@"'
    told = subprocess.run(
        ["/bin/sh", "-c", shell, "sh", *command, "--rootdir", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert told.returncode == 0, told.stdout
    assert "1 passed" in told.stdout

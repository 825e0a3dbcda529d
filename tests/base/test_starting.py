"""Ctrl-C while a command line is still being imported: one line, exit 130, no traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest

INTERRUPTED_IMPORT = """
import sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
from {entry} import main
main()
"""


@pytest.mark.parametrize("entry", ["edgefed.cli.entry", "device_agent.entry"])
def test_ctrl_c_during_the_imports_is_told_in_one_line(entry: str) -> None:
    code = INTERRUPTED_IMPORT.format(entry=entry)
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (130, "")
    assert ended.stderr == "edgefed: error: Interrupted.  [interrupted]\n"


@pytest.mark.parametrize("entry", ["edgefed.cli.entry", "device_agent.entry"])
def test_an_entry_itself_imports_nothing_heavy(entry: str) -> None:
    code = f"import sys, {entry}; print('typer' in sys.modules, 'pydantic' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["False", "False"]


SWALLOWED = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except BaseException:
                pass

sys.meta_path.insert(0, Interrupting())
from {entry} import main
sys.argv = ["program", "version"]
main()
"""


@pytest.mark.parametrize("entry", ["edgefed.cli.entry", "device_agent.entry"])
def test_ctrl_c_is_not_lost_in_an_import_that_catches_everything(entry: str) -> None:
    code = SWALLOWED.format(entry=entry)
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (130, "")
    assert ended.stderr == "edgefed: error: Interrupted.  [interrupted]\n"

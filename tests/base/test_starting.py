"""Ctrl-C while a command line is still being imported: one line, exit 130, no traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import edgefed

INTERRUPTED_IMPORT = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name != "{module}":
            return
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except BaseException:
            if not {swallowed}:
                raise

sys.meta_path.insert(0, Interrupting())
sys.argv[1:] = {words}
from {entry} import main
main()
"""

ENTRIES = ["edgefed.cli.entry", "device_agent.entry"]
LINE = "edgefed: error: Interrupted.  [interrupted]\n"


def interrupted(
    entry: str, module: str, *words: str, swallowed: bool = False, ignored: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run an entry that gets SIGINT while it imports a module."""
    code = INTERRUPTED_IMPORT.format(
        entry=entry, module=module, words=list(words), swallowed=swallowed
    )
    before = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" if ignored else ""
    return subprocess.run(
        [sys.executable, "-c", before + code], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("entry", "module"),
    [(ENTRIES[0], "typer"), (ENTRIES[0], "numpy"), (ENTRIES[1], "typer.core"),
     (ENTRIES[1], "pydantic")],
)  # fmt: skip
def test_ctrl_c_during_the_imports_is_told_in_one_line(entry: str, module: str) -> None:
    words = ["algo", "list"] if entry.startswith("edgefed") else ["data", "--no-config"]
    ended = interrupted(entry, module, *words)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", LINE)


def test_a_module_cannot_swallow_it() -> None:
    ended = interrupted(ENTRIES[1], "typer", "version", swallowed=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", LINE)


def test_a_program_in_the_background_whose_shell_ignores_it_goes_on() -> None:
    ended = interrupted(ENTRIES[0], "typer", "version", "--json", ignored=True)
    assert ended.returncode == 0
    assert ended.stderr == ""


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_imports_little_before_it_handles_ctrl_c(entry: str) -> None:
    """Without ``site``, whose modules differ from one installation to the next."""
    root = str(Path(edgefed.__file__).parents[1])
    code = f"import sys; sys.path.insert(0, {root!r}); import {entry}; print(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True
    )
    late = {"contextlib", "importlib", "typing", "re", "pathlib", "collections.abc"}
    assert set(ended.stdout.split()) & late == set()


def test_the_end_of_a_command_searches_no_cycles() -> None:
    code = (
        "import atexit, gc\n"
        "from edgefed.terminal.console import start\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 0))\n"
        "start(lambda: None)\n"
    )
    # What is registered later is called earlier.
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "True\n"


def test_a_command_searches_cycles_seldom_while_it_imports() -> None:
    """An import of torch makes half a million objects that stay."""
    code = (
        "import gc\n"
        "from edgefed.terminal.console import start\n"
        "def searches():\n"
        "    before = gc.get_stats()[0]['collections']\n"
        "    kept = [[] for _ in range(50_000)]\n"
        "    print(gc.get_stats()[0]['collections'] - before)\n"
        "searches()\n"
        "start(searches)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, then = map(int, ended.stdout.split())
    assert 0 < then < first / 10

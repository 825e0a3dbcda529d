"""Ctrl-C ends a program with its documented exit code, wherever it arrives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.processes import clean_environment

PROGRAM = """
import typer
from edgefed.terminal.console import reported, start

app = typer.Typer()


@app.command()
def interrupted() -> None:
    with reported():
        exec("import os, signal; os.kill(os.getpid(), signal.SIGINT); [0 for _ in range(9)]")


start(app)
"""


def test_ctrl_c_inside_executed_source_text_ends_with_our_exit_code(tmp_path: Path) -> None:
    """Importing a module with dataclasses executes source text, at which CPython notes Ctrl-C."""
    (tmp_path / "program_in_exec.py").write_text(PROGRAM)
    ended = subprocess.run(
        [sys.executable, "-m", "program_in_exec"],
        capture_output=True,
        text=True,
        env={**clean_environment(), "PYTHONPATH": str(tmp_path)},
        check=False,
    )
    assert ended.stderr == "edgefed: error: Interrupted.  [interrupted]\n"
    assert ended.returncode == 130

"""Start our own programs as processes that always end with the test."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping

import psutil

from broker.child_process import ending_with_parent

PATIENCE = 300.0
"""Seconds after which a process is taken for stuck, also on a busy machine."""


def clean_environment() -> dict[str, str]:
    """Return the environment without settings of ours, or files of them, or a window's size."""
    others = ("EDGEFED_", "COLUMNS", "LINES")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(others)}
    return {**kept, "EDGEFED_NO_CONFIG": "1"}


def start_python(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start ``python`` itself; the kernel kills it when the tests end before it."""
    return _start([sys.executable, *arguments], environment)


def start_module(
    module: str, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start ``python -m module`` by a launcher, as ``start_python`` does without one."""
    from tests.programs.launched_programs import launching

    return _start(launching(module, *arguments), environment)


def _start(command: list[str], environment: Mapping[str, str] | None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ending_with_parent(command, signal.SIGKILL),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**clean_environment(), **(environment or {})},
    )


def edgefed(*arguments: str) -> subprocess.Popen[str]:
    """Start ``edgefed`` with arguments."""
    return start_module("edgefed.cli.main", *arguments)


def outcome(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Return the exit code, stdout and stderr of a process once it has ended."""
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"it did not end; it said {out!r} and {err!r}") from None
    return process.returncode, out, err


def wait_until_ended(processes: Iterable[psutil.Process]) -> None:
    """Wait until none of these processes works any more; one that nobody waits for is a zombie."""
    until = time.monotonic() + PATIENCE
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            while process.status() != psutil.STATUS_ZOMBIE:
                assert time.monotonic() < until, f"{process} goes on"
                time.sleep(0.01)

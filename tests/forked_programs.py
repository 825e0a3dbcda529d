"""Start our own programs by a fork of a process that has imported torch, which takes seconds.

A program gets its words, its environment and its log as after ``python -m``. It is a process of its
own, which can be killed at any moment. Tests of how programs start use ``tests.processes``.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Protocol

from broker.parent_death import execute_with_parent

_CONTEXT = get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.preloaded_modules"])


class Running(Protocol):
    """What a test does with a program, however it was started."""

    @property
    def pid(self) -> int: ...

    def kill(self) -> None: ...

    def wait(self) -> int: ...

    def poll(self) -> int | None: ...


class ForkedProgram:
    """A running ``python -m``.

    Args:
        words: the module and its arguments.
        environment: all that it sees of one.
        log: gets what it says, after what is there.
    """

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        given = (list(words), dict(environment), log)
        self._process = _CONTEXT.Process(target=_run, args=given)
        self._process.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process.pid is not None
        return self._process.pid

    def kill(self) -> None:
        """Send it SIGKILL."""
        self._process.kill()

    def wait(self) -> int:
        """Return its exit code once it has ended."""
        self._process.join()
        assert self._process.exitcode is not None
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return its exit code; None while it runs."""
        return self._process.exitcode


def _run(words: list[str], environment: dict[str, str], log: Path) -> None:
    """Become the program."""
    if sys.platform.startswith("linux"):
        execute_with_parent(os.getppid(), signal.SIGKILL)
    os.environ.clear()
    os.environ.update(environment)
    opened = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(opened, 1)
    os.dup2(opened, 2)
    sys.argv = list(words)
    folders = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [folder for folder in folders if folder and folder not in sys.path]
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)

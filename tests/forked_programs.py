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
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory
from typing import Protocol

from broker.parent_death import execute_with_parent
from tests.faults.shifted_clock import VARIABLE, follow_own_clock

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
        errors: gets what it says on stderr; the log does when left out.
    """

    def __init__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        errors: Path | None = None,
    ) -> None:
        given = (list(words), dict(environment), log, errors or log)
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


def ended(words: Sequence[str], environment: Mapping[str, str]) -> CompletedProcess[str]:
    """Run a program to its end, as ``subprocess.run`` does."""
    with TemporaryDirectory() as folder:
        said = Path(folder) / "stdout", Path(folder) / "stderr"
        code = ForkedProgram(words, environment, *said).wait()
        out, err = (path.read_text() for path in said)
    return CompletedProcess(words, code, out, err)


def _run(words: list[str], environment: dict[str, str], log: Path, errors: Path) -> None:
    """Become the program."""
    if sys.platform.startswith("linux"):
        execute_with_parent(os.getppid(), signal.SIGKILL)
    os.environ.clear()
    os.environ.update(environment)
    for stream, path in ((1, log), (2, errors)):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(opened, stream)
        os.close(opened)
    if VARIABLE in environment:
        follow_own_clock(environment[VARIABLE])
    sys.argv = list(words)
    folders = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [folder for folder in folders if folder and folder not in sys.path]
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)

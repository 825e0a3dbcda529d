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
from tests.forked_training import fork_training
from tests.processes import PATIENCE, clean_environment

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
        folder: its working folder; that of this process when left out.
    """

    def __init__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        errors: Path | None = None,
        folder: Path | None = None,
    ) -> None:
        mask = os.umask(0)
        os.umask(mask)
        given = (list(words), dict(environment), log, errors or log, folder or Path.cwd(), mask)
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

    def terminate(self) -> None:
        """Send it SIGTERM."""
        self._process.terminate()

    def wait(self, seconds: float | None = None) -> int:
        """Return its exit code once it has ended.

        Raises:
            TimeoutError: it runs for longer than ``seconds``.
        """
        self._process.join(seconds)
        if self._process.exitcode is None:
            raise TimeoutError(f"process {self.pid} has not ended")
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return its exit code; None while it runs."""
        return self._process.exitcode


def ended(
    words: Sequence[str], environment: Mapping[str, str], folder: Path | None = None
) -> CompletedProcess[str]:
    """Run a program to its end, as ``subprocess.run`` does."""
    with TemporaryDirectory() as said:
        out, err = Path(said) / "stdout", Path(said) / "stderr"
        program = ForkedProgram(words, environment, out, err, folder)
        try:
            code = program.wait(PATIENCE)
        except TimeoutError:
            program.kill()
            program.wait()
            told = f"it said {out.read_text()!r} and {err.read_text()!r}"
            raise AssertionError(f"{words} did not end; {told}") from None
        return CompletedProcess(words, code, out.read_text(), err.read_text())


def run_module(
    module: str, *arguments: str, environment: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Run ``python -m module`` to its end and return the exit code, stdout and stderr.

    Args:
        environment: what its environment has beside ``clean_environment``.
    """
    done = ended([module, *arguments], {**clean_environment(), **(environment or {})})
    return done.returncode, done.stdout, done.stderr


def _run(
    words: list[str], environment: dict[str, str], log: Path, errors: Path, folder: Path, mask: int
) -> None:
    """Become the program."""
    if sys.platform.startswith("linux"):
        execute_with_parent(os.getppid(), signal.SIGKILL)
    os.umask(mask)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
    os.environ.clear()
    os.environ.update(environment)
    for stream, path in ((1, log), (2, errors)):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(opened, stream)
        os.close(opened)
    os.chdir(folder)
    if VARIABLE in environment:
        follow_own_clock(environment[VARIABLE])
    sys.argv = list(words)
    folders = environment.get("PYTHONPATH", "").split(os.pathsep)
    fork_training()
    sys.path[:0] = [folder for folder in folders if folder and folder not in sys.path]
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)

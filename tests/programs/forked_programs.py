"""Start our own programs by a fork of a process that has imported torch, which takes seconds.

A program gets its words, its environment and its log as after ``python -m``. It is a process of its
own, which can be killed at any moment. Tests of how programs start use ``tests.processes``.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import runpy
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver, get_context, reduction
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from broker.parent_death import execute_with_parent
from tests.faults.shifted_clock import VARIABLE, follow_own_clock
from tests.processes import PATIENCE, clean_environment
from tests.programs.forked_training import fork_training

_CONTEXT = get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.programs.preloaded_modules"])


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
        log: gets what it says, after what is there; or stdin, stdout and stderr, which are closed.
        errors: gets what it says on stderr; the log does when left out.
        folder: its working folder; that of this process when left out.
        mask: of the files that it makes; that of this process when left out.
        like: a process whose network and mounts it sees; 0 for this one.
    """

    def __init__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        log: Path | Sequence[int],
        errors: Path | None = None,
        *,
        folder: Path | str | None = None,
        mask: int | None = None,
        like: int = 0,
    ) -> None:
        opened = list(log) if not isinstance(log, Path) else _opened(log, errors or log)
        mask = _mask() if mask is None else mask
        place = str(folder or Path.cwd())
        try:
            files = _Files(opened)
            given = (list(words), dict(environment), files, place, mask, like)
            self._process = _CONTEXT.Process(target=_run, args=given)
            self._process.start()
        finally:
            for each in opened:
                os.close(each)

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

    @property
    def sentinel(self) -> int:
        """A file that can be read once it has ended."""
        return self._process.sentinel

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it ends right now
                os.kill(self.pid, number)

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
        program = ForkedProgram(words, environment, out, err, folder=folder)
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


def printed_by(name: str, *words: str) -> str:
    """Return what a benchmark prints, as ``benchmarks.shared.harness.printed_by`` does."""
    code, out, err = run_module(f"benchmarks.{name}", *words)
    assert code == 0, err
    return out


class _Files:
    """Open files that travel to the process that is forked."""

    def __init__(self, files: Sequence[int]) -> None:
        self._files = files

    def __getstate__(self) -> list[Any]:
        return [reduction.DupFd(each) for each in self._files]

    def __setstate__(self, files: list[Any]) -> None:
        self._files = [each.detach() for each in files]

    def become_standard(self) -> None:
        """Make them stdin, stdout and stderr, as they are after the start of Python."""
        for number, (file, name) in enumerate(zip(self._files, _STREAMS, strict=True)):
            os.dup2(file, number)
            os.close(file)
            lines = number == 2 or os.isatty(number)
            stream = open(  # noqa: SIM115
                number, "w" if number else "r", buffering=1 if lines else -1, closefd=False
            )
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


_STREAMS = ("stdin", "stdout", "stderr")


def _opened(log: Path, errors: Path) -> list[int]:
    """Return nothing to read, and the files to write to."""
    how = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return [os.open(os.devnull, os.O_RDONLY), os.open(log, how, 0o600), os.open(errors, how, 0o600)]


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _join_namespaces(pid: int) -> None:
    """See the network and the mounts that a process sees."""
    for kind in ("net", "mnt"):
        path = Path(f"/proc/{pid}/ns/{kind}")
        if path.readlink() != Path(f"/proc/self/ns/{kind}").readlink():
            with path.open() as space:
                if ctypes.CDLL(None, use_errno=True).setns(space.fileno(), 0):
                    raise OSError(ctypes.get_errno(), "setns", path)


def _let_the_server_end() -> None:
    """Close what would keep the server alive after the tests; the kernel ends us with it."""
    server = vars(forkserver._forkserver)
    if server["_forkserver_alive_fd"] is not None:
        os.close(server["_forkserver_alive_fd"])
        server["_forkserver_alive_fd"] = None


def _run(
    words: list[str], environment: dict[str, str], files: _Files, folder: str, mask: int, like: int
) -> None:
    """Become the program."""
    if sys.platform.startswith("linux"):
        execute_with_parent(os.getppid(), signal.SIGKILL)
    _let_the_server_end()
    if like:
        _join_namespaces(like)
    os.umask(mask)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(folder)
    files.become_standard()
    if VARIABLE in environment:
        follow_own_clock(environment[VARIABLE])
    sys.argv = list(words)
    folders = environment.get("PYTHONPATH", "").split(os.pathsep)
    fork_training()
    sys.path[:0] = [folder for folder in folders if folder and folder not in sys.path]
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)

"""A broker as a child process: start it, watch it, stop it, and end it with its parent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from broker.address import connect_host, port_in_use
from edgefed.config.values.address import Address
from edgefed.errors import EdgeFedError, UnreachableError
from edgefed.files.writing import make_folder, open_private, storage_error

START_SECONDS = 20.0
"""After this long a broker that accepts no connections has failed, or opens a large database."""

OPENING_SECONDS = 600.0
"""For this long Mosquitto may open its database, as long as its log has no error."""

STOP_SECONDS = 5.0
_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class ProcessLimits:
    """Limits of a child process (Linux).

    Attributes:
        open_files: most open files, and therefore connections; 0 for the limit of this process.
        nice: reduction of its priority below that of this process.
    """

    open_files: int = 0
    nice: int = 0


NO_LIMITS = ProcessLimits()


class ChildProcess:
    """A program that runs until ``stop`` or any end of this process.

    It gets a session of its own, so that Ctrl-C in the terminal reaches this process only and the
    broker outlives its clients. Its output goes to the log file.

    Args:
        command: the program's path and its arguments.
        folder: its working folder; created when absent.
        log: the file that stdout and stderr are appended to.
        last_signal: the signal that the kernel sends it when this process dies (Linux).
        environment: the program's whole environment; that of this process when left out.
        limits: of the process.

    Raises:
        StorageError: the folder or the log cannot be written.
        UnreachableError: the program cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        log: Path,
        last_signal: signal.Signals = signal.SIGTERM,
        environment: Mapping[str, str] | None = None,
        limits: ProcessLimits = NO_LIMITS,
    ) -> None:
        self.log = log
        make_folder(folder)
        self._log_start = log.stat().st_size if log.exists() else 0
        started: Future[subprocess.Popen[bytes]] = Future()
        whole = ending_with_parent(command, last_signal, limits)
        start = partial(_popen, whole, folder, log, environment)
        # The kernel's signal at the parent's death is tied to the thread that starts the process,
        # and the caller's may be a passing worker: this one lives as long as the process.
        self._keeper = threading.Thread(
            target=_keep, args=(start, started), name="broker", daemon=True
        )
        self._keeper.start()
        try:
            self._process = started.result()
        except OSError as error:
            raise _cannot_start(command[0], error) from error

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def is_running(self) -> bool:
        """Whether the process has not ended yet."""
        return self._process.poll() is None

    def said(self) -> str:
        """Return the end of the process's output since it was started."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(self._log_start, self.log.stat().st_size - 4096))
                return file.read().decode(errors="replace").strip()
        except OSError:
            return ""

    def terminate(self) -> None:
        """Ask the process to end, and do not wait."""
        self._process.terminate()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """End the process: SIGTERM, and SIGKILL when that has not worked after ``seconds``."""
        for end in (self._process.terminate, self._process.kill):
            if self.is_running():
                end()
            self._keeper.join(seconds)
        self._process.wait()


def wait_until_accepting(
    child: ChildProcess,
    address: Address,
    seconds: float = START_SECONDS,
    *,
    opening: float = 0.0,
    tell: Callable[[str], None] = lambda line: None,
    monotonic: Callable[[], float] = time.monotonic,
) -> None:
    """Wait until the child accepts connections; stop it if that does not happen.

    Args:
        child: the broker.
        address: of its listener.
        seconds: time limit.
        opening: time limit if its log has no error: it opens a large database.
        tell: takes one line if it takes longer than ``seconds``.
        monotonic: seconds that never go back.

    Raises:
        UsageError: the port is taken.
        UnreachableError: the child ended, or does not accept connections in time.
    """
    began, announced = monotonic(), False
    try:
        while not _accepts(address):
            waited = monotonic() - began
            late = waited > seconds and (waited > opening or "error" in child.said().lower())
            if late or not child.is_running():
                raise start_error(child, address)
            if waited > seconds and not announced:
                announced = True
                tell(f"Mosquitto opens its database; waiting for it up to {opening / 60:.0f} min")
            time.sleep(_POLL_SECONDS)
    except BaseException:
        child.stop()
        raise


def start_error(child: ChildProcess, address: Address) -> EdgeFedError:
    """Return the error for a child that did not start, from its output."""
    said = child.said()
    if "address already in use" in said.lower():
        return port_in_use(address)
    last = said.splitlines()[-1] if said else "it said nothing"
    return UnreachableError(
        f"The broker did not start on {address}: {last}",
        code="broker.start",
        hint=f"read its log: {child.log}",
    )


def ending_with_parent(
    command: Sequence[str],
    last_signal: signal.Signals,
    limits: ProcessLimits = NO_LIMITS,
) -> list[str]:
    """Return a command that gets a signal when the thread that starts it ends (Linux)."""
    if not sys.platform.startswith("linux") or not sys.executable:
        return list(command)
    script = str(Path(__file__).with_name("parent_death.py"))
    numbers = (os.getpid(), int(last_signal), limits.open_files, limits.nice)
    return [sys.executable, "-I", "-S", script, *map(str, numbers), *command]


def _popen(
    command: list[str], folder: Path, log: Path, environment: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    with open_private(log, "ab") as output:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def _keep(
    start: Callable[[], subprocess.Popen[bytes]], started: Future[subprocess.Popen[bytes]]
) -> None:
    """Start the process, hand it over, and wait for its end."""
    try:
        process = start()
    except OSError as error:
        started.set_exception(error)
        return
    started.set_result(process)
    process.wait()


def _accepts(address: Address) -> bool:
    try:
        with socket.create_connection((connect_host(address), address.port), timeout=1.0):
            return True
    except OSError:
        return False


def _cannot_start(program: str, error: OSError) -> EdgeFedError:
    if error.filename not in (program, sys.executable):
        return storage_error(Path(error.filename or "."), error)
    return UnreachableError(
        f"Cannot start {program}: {error.strerror}.",
        code="broker.start",
        hint="check that the program is installed and executable",
    )

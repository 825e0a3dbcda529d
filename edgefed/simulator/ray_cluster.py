"""Connect to a Ray cluster: start one on this machine, or join one and leave it running."""

from __future__ import annotations

import importlib
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from edgefed.errors import EdgeFedError, UnreachableError, UsageError
from edgefed.files.optional import wanted
from edgefed.simulator.process_pool import core_count

LOOPBACK = "127.0.0.1"
LATEST, OURS = "auto", "local"
"""Addresses of Ray's own: the cluster last started on this machine; one of our own."""

ANSWER_SECONDS = 5.0
SHOWN = 300
"""Most characters of an error of Ray's that are shown."""

_QUIET = {"log_to_driver": False, "logging_level": "ERROR"}
"""Output of workers does not belong to the run's stdout or stderr; Ray keeps it in its log
files."""


@dataclass(frozen=True)
class Cluster:
    """A cluster that this process is connected to.

    Attributes:
        ray: the module.
        address: where it was joined; empty for our own.
        machines: how many there are.
        cpus, gpus: of the machines with GPUs, if there are any, and otherwise of all.
    """

    ray: Any
    address: str
    machines: int
    cpus: int
    gpus: int

    def __str__(self) -> str:
        """Describe its place and its resources."""
        where = f"the cluster at {self.address}" if self.address else "this machine"
        gpus = f", {self.gpus} GPUs" if self.gpus else ""
        machines = "1 machine" if self.machines == 1 else f"{self.machines} machines"
        return f"Ray on {where} ({machines}, {self.cpus} CPUs{gpus})"


@contextmanager
def cluster(address: str = "", workers: int = 0) -> Iterator[Cluster]:
    """Join a cluster, or start one on this machine that ends with the ``with`` block.

    A program that is connected to Ray already stays connected to that cluster.

    Args:
        address: ``HOST:PORT`` or ``auto``, the latest of this machine; empty for the value of the
            variable ``RAY_ADDRESS``. Without that, or with ``local``, a cluster of our own.
        workers: of a cluster of our own; 0 for one a core.

    Raises:
        UsageError: Ray is not installed, or the address is invalid.
        UnreachableError: there is no cluster.
        EdgeFedError: the cluster has another Ray or Python, or ours does not start.
    """
    address = address or os.environ.get("RAY_ADDRESS", "") or OURS
    host = _host(address)
    if host in ("", "localhost", LOOPBACK):
        # Ray puts the machine's public address in place of the loopback's but where this says no.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address == OURS:
        _share_secret()
    # Ray warns of a change to come if it may not say what it does with workers without a GPU.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray = wanted("ray", "ray", code="ray.missing")
    _silence()
    if ray.is_initialized():
        yield _measured(ray, ray.get_runtime_context().gcs_address)
        return
    with _folder() as folder:
        try:
            with _unbroken():
                if address == OURS:
                    _start(ray, workers, folder)
                else:
                    _join(ray, address)
            yield _measured(ray, "" if address == OURS else address)
        finally:
            with _unbroken():
                ray.shutdown()


@contextmanager
def _unbroken() -> Iterator[None]:
    """Put Ctrl-C off until the block is done; a second one counts at once. SIGTERM is kept.

    Interrupted half way into starting, Ray leaves processes behind, or crashes at its end. Its own
    handler of SIGTERM would replace this program's, and end it with the status 15.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = 0

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came += 1
        if came > 1:
            raise KeyboardInterrupt

    before, terminate = signal.signal(signal.SIGINT, note), signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGTERM, terminate)
    if came:
        raise KeyboardInterrupt


@contextmanager
def _folder() -> Iterator[Path]:
    """Keep a folder for the files of a Ray cluster of our own."""
    # The paths of Ray's sockets are long, and the system takes about a hundred characters.
    base = "/tmp" if os.name == "posix" else None
    folder = Path(tempfile.mkdtemp(prefix="edgefed-ray-", dir=base))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _share_secret() -> None:
    """Let only this process and its children into a cluster of our own.

    Ray asks for a token, and without one given it would keep one in the user's home folder. It
    reads these variables when it is imported.
    """
    names = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    if "ray" not in sys.modules and not any(name in os.environ for name in names):
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def _silence() -> None:
    """Keep Ray from printing the deaths of workers on stdout, which is for results.

    It has no setting for that; the code that uses the actors reports their errors.
    """
    worker: Any = importlib.import_module("ray._private.worker")
    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *given, **named: None


def _start(ray: Any, workers: int, folder: Path) -> None:
    """Start a cluster of this machine alone, on the loopback."""
    try:
        ray.init(
            address="local",
            num_cpus=workers or core_count(),
            include_dashboard=False,
            _node_ip_address=LOOPBACK,
            _temp_dir=str(folder),
            **_QUIET,
        )
    except (RuntimeError, OSError, ValueError) as error:
        raise EdgeFedError(
            f"Ray does not start on this machine: {brief(error)}.",
            code="ray.start",
            hint="omit --on ray, or join a cluster with --address HOST:PORT",
        ) from error


def _join(ray: Any, address: str) -> None:
    """Connect to somebody's cluster."""
    try:
        if address != LATEST:
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), ANSWER_SECONDS).close()
        ray.init(address=address, **_QUIET)
    except (RuntimeError, OSError, ValueError) as error:
        reason = brief(error)
        if reason.startswith("Version mismatch"):
            raise EdgeFedError(
                f"The Ray cluster at {address} has a different version of Ray or Python. {reason}.",
                code="ray.version",
                hint="install the same versions here and on the cluster",
            ) from error
        raise UnreachableError(
            f"Cannot join a Ray cluster at {address}: {reason}.",
            code="ray.unreachable",
            hint="check that it runs (ray status), that this is one of its machines, and its token "
            "(RAY_AUTH_MODE=token)",
        ) from error


def _measured(ray: Any, address: str) -> Cluster:
    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    useful = [node for node in alive if node.get("GPU")] or alive
    cpus, gpus = (int(sum(node.get(kind, 0) for node in useful)) for kind in ("CPU", "GPU"))
    return Cluster(ray, address, len(alive), cpus, gpus)


def _host(address: str) -> str:
    """Return the host of an address, empty for those of Ray's own.

    Raises:
        UsageError: it is no address.
    """
    if address in (LATEST, OURS):
        return ""
    host, _, port = address.rpartition(":")
    if "/" in address or not host or not (port.isascii() and port.isdigit()):
        raise UsageError(
            f"{address} is not the address of a Ray cluster.",
            code="ray.address",
            hint="write --address HOST:PORT, as printed by ray start --head",
        )
    return host


def brief(error: Exception) -> str:
    """Return an error of Ray's as one line, without a full stop."""
    return " ".join(str(error).split())[:SHOWN].rstrip(".: ") or type(error).__name__


def cause_of(error: Exception) -> str:
    """Return the last line of an error of Ray's, which usually names the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = lines[-1].partition(" Some common causes")[0] if lines else type(error).__name__
    return cause[:SHOWN].rstrip(".: ")

"""Services of this machine in systemd: install, inspect and remove them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from edgefed.errors import NotAllowedError, UnknownNameError, UnreachableError
from edgefed.files.writing import storage_error
from edgefed.process.clock import Clock, timestamp
from edgefed.process.service_unit import ServiceKind, is_unedited

SYSTEM_UNITS = Path("/etc/systemd/system")
BOOTED = Path("/run/systemd/system")
"""Exists where systemd is the service manager (sd_booted(3))."""

SHOWN = (
    "ActiveState", "SubState", "UnitFileState", "NRestarts", "Result", "MainPID", "WatchdogUSec",
    "ActiveEnterTimestampMonotonic", "WatchdogTimestampMonotonic",
)  # fmt: skip
"""Properties of a unit that make its status."""


@dataclass(frozen=True)
class ServiceStatus:
    """The state of a service.

    Attributes:
        service: name of the unit, without ``.service``.
        installed: whether there is a unit file.
        edited: whether the unit file is not as ``service install`` wrote it.
        enabled: whether it starts with the machine or the user's session.
        active: whether it runs.
        state: systemd's words, such as ``active (running)``.
        result: why it ended last, such as ``watchdog``; ``success`` otherwise.
        since: UTC time of its last start; empty if it does not run.
        pid: of its main process; 0 for none.
        restarts: automatic restarts since it was installed or started by hand.
        watchdog_seconds: seconds without a sign of life after which it is restarted; 0 for none.
        watchdog_at: UTC time of its last sign of life; empty for none.
    """

    service: str
    installed: bool
    edited: bool
    enabled: bool
    active: bool
    state: str
    result: str
    since: str
    pid: int
    restarts: int
    watchdog_seconds: float
    watchdog_at: str


class Systemd:
    """The system's service manager for root, otherwise the user's own.

    Args:
        clock: for the times of a status.
        environment: of the process.
        user: whether it is the user's manager; by default, whether the process is not root's.
    """

    def __init__(
        self, clock: Clock, environment: Mapping[str, str], user: bool | None = None
    ) -> None:
        self._clock = clock
        self.user = os.geteuid() != 0 if user is None else user
        config = Path(environment.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        self.units = config / "systemd" / "user" if self.user else SYSTEM_UNITS
        self._config = config if self.user else Path("/etc")
        self._runtime = Path(environment.get("XDG_RUNTIME_DIR", ""), "systemd", "private")

    def check(self) -> None:
        """Check that the service manager runs.

        Raises:
            UnreachableError: ``service.no_systemd``.
        """
        if BOOTED.is_dir() and (not self.user or self._runtime.exists()):
            return
        raise UnreachableError(
            f"systemd does not manage {'this session' if self.user else 'this machine'}.",
            code="service.no_systemd",
            hint="log in as that user, not by su or sudo, or install as root"
            if BOOTED.is_dir()
            else "run the program in the foreground, or under the service manager of this machine",
        )

    def version(self) -> int:
        """Return systemd's version; 0 if there is none."""
        try:
            words = self._run("--version").split()
        except UnreachableError:
            return 0
        return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0

    def install(self, unit: str, text: str, *, force: bool, start: bool) -> Path:
        """Write a unit file, and enable and restart the service.

        Args:
            unit: the file's name.
            text: all of it.
            force: replace a file that was edited or installed by other means.
            start: whether to enable and start it.

        Raises:
            NotAllowedError: ``service.edited``.
            UnreachableError: ``service.no_systemd`` or ``service.failed``.
            StorageError: the file cannot be written.
        """
        self.check()
        path = self.units / unit
        self._check_unedited(path, "replace", force=force)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            path.chmod(0o644)
        except OSError as error:
            raise storage_error(path, error) from error
        self._run("daemon-reload")
        if start:
            self._run("enable", unit)
            # A service that runs already takes a changed unit file only at a restart
            self._run("restart", unit)
        return path

    def uninstall(self, unit: str, *, force: bool) -> Path:
        """Stop and disable a service, and delete its unit file.

        Raises:
            UnknownNameError: ``service.unknown``: it is not installed.
            NotAllowedError: ``service.edited``.
            UnreachableError: ``service.no_systemd`` or ``service.failed``.
        """
        path = self.units / unit
        if not path.exists():
            raise UnknownNameError(
                f"There is no {path}.", code="service.unknown", hint="list those there are: status"
            )
        self.check()
        self._check_unedited(path, "delete", force=force)
        self._run("disable", "--now", unit)
        path.unlink()
        self._run("daemon-reload")
        return path

    def status(self, unit: str) -> ServiceStatus:
        """Return the state of a service, installed or not.

        Raises:
            UnreachableError: ``service.no_systemd`` or ``service.failed``.
        """
        self.check()
        path = self.units / unit
        shown = self._run("show", unit, *(f"--property={name}" for name in SHOWN))
        got = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
        active = got["ActiveState"] in ("active", "reloading")
        return ServiceStatus(
            service=unit.removesuffix(".service"),
            installed=path.exists(),
            edited=path.exists() and not is_unedited(path.read_text(encoding="utf-8")),
            enabled=got.get("UnitFileState", "").startswith("enabled"),
            active=active,
            state=f"{got['ActiveState']} ({got['SubState']})",
            result=got.get("Result", ""),
            since=self._time(got.get("ActiveEnterTimestampMonotonic", "")) if active else "",
            pid=int(got.get("MainPID") or 0),
            restarts=int(got.get("NRestarts") or 0),
            watchdog_seconds=seconds_of(got.get("WatchdogUSec", "")),
            watchdog_at=self._time(got.get("WatchdogTimestampMonotonic", "")) if active else "",
        )

    def names_broker(self, kind: ServiceKind) -> bool:
        """Whether a service's file with variables names its broker."""
        try:
            text = (self._config / "edgefed" / f"{kind}.env").read_text(encoding="utf-8")
        except OSError:
            return False
        return re.search(r"^EDGEFED_BROKER=.", text, re.MULTILINE) is not None

    def _check_unedited(self, path: Path, verb: str, *, force: bool) -> None:
        if force or not path.exists() or is_unedited(path.read_text(encoding="utf-8")):
            return
        raise NotAllowedError(
            f"{path} was edited, or installed by other means.",
            code="service.edited",
            hint=f"move your changes to {path}.d/own.conf, then --force to {verb} it",
        )

    def _time(self, microseconds: str) -> str:
        """Return a monotonic time of systemd as UTC; empty for none."""
        if not microseconds.isdigit() or microseconds == "0":
            return ""
        age = self._clock.monotonic() - int(microseconds) / 1e6
        return timestamp(self._clock.now() - timedelta(seconds=age))

    def _run(self, *words: str) -> str:
        """Return the output of ``systemctl``."""
        command = ["systemctl", *(["--user"] if self.user else []), *words]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=330, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UnreachableError(
                f"systemctl {words[0]} did not end: {error}.", code="service.failed"
            ) from error
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[0]
            raise UnreachableError(
                f"systemctl {words[0]} failed: {reason}",
                code="service.failed",
                hint=f"journalctl {'--user ' * self.user}-n 50 -u {words[-1]}",
            )
        return done.stdout


_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def seconds_of(span: str) -> float:
    """Return a span of time as systemd shows it, such as ``1min 30s``, in seconds."""
    parts = re.findall(r"(\d+)(us|ms|s|min|h|d)\b", span)
    return sum((float(number) * _UNITS[unit] for number, unit in parts), 0.0)

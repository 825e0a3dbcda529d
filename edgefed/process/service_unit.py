"""The text of the systemd units of EdgeFed's services: those in deploy/ and those installed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal

ServiceKind = Literal["agent", "coordinator", "broker", "gateway"]

BACK_OFF_SINCE = 254
"""The first version of systemd that waits longer after each failure."""

_SEALED = (
    "CapabilityBoundingSet=",
    "PrivateTmp=yes",
    "ProtectControlGroups=yes",
    "ProtectHostname=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
    "ProtectSystem=strict",
)
"""Restrictions that only the system's service manager can apply."""

_UNPRIVILEGED = (
    "LockPersonality=yes",
    "NoNewPrivileges=yes",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "SystemCallArchitectures=native",
)
_FAMILIES = "RestrictAddressFamilies=AF_INET AF_INET6 AF_NETLINK AF_UNIX"

_HEAD = re.compile(r"# Written by (?:edgefed|edgefed-agent) service install\b")
_SUM = re.compile(r"# sha256 ([0-9a-f]{64})\n")


@dataclass(frozen=True)
class ServiceUnit:
    """A service and its limits.

    Attributes:
        command: the program's absolute path and its arguments.
        name: of the unit's file.
        run_as: the user that runs a system service; empty for a user's own service.
        state: state folder; None for the default one.
        memory: value of ``MemoryMax``, such as ``4G``; empty for no limit.
        cpu: value of ``CPUQuota``, such as ``150%``; empty for no limit.
        watchdog: seconds without a turn of the main loop after which the service is restarted.
        fields: extra fields of each journal entry.
        systemd: version of systemd.
    """

    kind: ServiceKind
    command: tuple[str, ...]
    name: str
    run_as: str = "edgefed"
    state: Path | None = None
    memory: str = ""
    cpu: str = ""
    watchdog: int = 180
    fields: tuple[tuple[str, str], ...] = ()
    systemd: int = BACK_OFF_SINCE

    @property
    def folder(self) -> str:
        """Name of the default state folder of a system service below ``/var/lib``."""
        return "edgefed-agent" if self.kind == "agent" else "edgefed"

    def text(self) -> str:
        """Return the unit file."""
        sections = {"Unit": self._about(), "Service": self._service(), "Install": self._wanted()}
        blocks = ["\n".join([f"[{name}]", *lines]) for name, lines in sections.items()]
        return "\n\n".join(blocks) + "\n"

    def _about(self) -> Iterator[str]:
        broker = self.name.replace(f"edgefed-{self.kind}", "edgefed-broker")
        local = self.kind in ("coordinator", "gateway")
        yield f"Description=EdgeFed {self.kind}"
        if self.run_as:  # a user's manager has no such targets
            yield "Wants=network-online.target"
            yield f"After=network-online.target{f' {broker} mosquitto.service' if local else ''}"
        yield "StartLimitIntervalSec=0"

    def _service(self) -> Iterator[str]:
        if self.kind != "broker":  # the broker is Mosquitto, which sends no signs of life
            yield "# It reports that it has started, and each turn of its main loop: a loop that"
            yield "# hangs is killed and started again. Training is beside that loop."
            yield "Type=notify"
            if "update" in self.command:
                yield "# The agent reports, and the main process is its updater."
                yield "NotifyAccess=all"
            yield "TimeoutStartSec=300"
            yield f"WatchdogSec={self.watchdog}"
        yield f"ExecStart={' '.join(quoted(word).replace('$', '$$') for word in self.command)}"
        yield from self._surroundings()
        yield "# State survives a kill, so a restart is always safe; a wrong setting or a missing"
        yield "# file (exit code 2) needs a person."
        yield "Restart=always"
        yield "RestartSec=5"
        if self.systemd >= BACK_OFF_SINCE:  # earlier versions warn about unknown names
            yield "RestartSteps=6"
            yield "RestartMaxDelaySec=300"
        yield from ("RestartPreventExitStatus=2", "KillSignal=SIGTERM", "TimeoutStopSec=30")
        yield from self._limits()
        yield from self._hardening()

    def _surroundings(self) -> Iterator[str]:
        yield f"EnvironmentFile=-%E/edgefed/{self.kind}.env"
        state = quoted(str(self.state)) if self.state else f"%S/{self.folder}"
        if self.run_as:
            yield f"Environment=EDGEFED_STATE={state} HOME={state}"
        elif self.state:
            yield f"Environment=EDGEFED_STATE={state}"
        if self.kind == "agent":
            yield "# The number of torch's threads is a setting."
            yield "UnsetEnvironment=OMP_NUM_THREADS MKL_NUM_THREADS"
            yield "# A training process that lacks memory ends alone; the agent starts another."
            yield "OOMPolicy=continue"
        yield f"SyslogIdentifier={self.name.removesuffix('.service')}"
        pairs = (("EDGEFED_SERVICE", self.kind), *self.fields)
        yield f"LogExtraFields={' '.join(quoted(f'{key}={value}') for key, value in pairs)}"

    def _limits(self) -> Iterator[str]:
        if self.memory:
            yield f"MemoryMax={self.memory}"
        if self.cpu:
            yield f"CPUQuota={self.cpu}"
        if self.kind == "broker":
            yield "# Each connection is an open file."
            yield "LimitNOFILE=8192"

    def _hardening(self) -> Iterator[str]:
        yield "UMask=0077"
        if not self.run_as:
            yield from [*_UNPRIVILEGED, _FAMILIES]
            return
        yield f"User={self.run_as}"
        lines = [*_SEALED, *_UNPRIVILEGED, _FAMILIES]
        if self.state is None:
            lines += [f"StateDirectory={self.folder}", "StateDirectoryMode=0700"]
        else:
            lines.append(f"ReadWritePaths={quoted(str(self.state))}")
        if self.kind == "agent":
            # A Jetson's GPU belongs to this group. PrivateDevices and ProtectClock hide GPUs.
            lines.append("SupplementaryGroups=video")
        else:
            lines += ["PrivateDevices=yes", "ProtectClock=yes"]
        inside_home = self.kind == "agent" or self._uses_home()
        lines.append(f"ProtectHome={'read-only' if inside_home else 'yes'}")
        yield from sorted(lines)

    def _uses_home(self) -> bool:
        paths = (Path(self.command[0]), *([self.state] if self.state else []))
        return any(path.parts[1:2] in (("home",), ("root",)) for path in paths)

    def _wanted(self) -> Iterator[str]:
        yield f"WantedBy={'multi-user' if self.run_as else 'default'}.target"


def quoted(word: str) -> str:
    """Return a word so that systemd reads it as one word, without specifiers."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    escaped = escaped.replace("\n", "\\n")
    return escaped if re.fullmatch(r"[\w./:@=,+%-]+", escaped) else f'"{escaped}"'


def sealed(text: str, program: str) -> str:
    """Return a unit's text below two lines that tell whether it was edited.

    Args:
        text: the unit.
        program: the program that installs it.
    """
    return (
        f"# Written by {program} service install; an edited file is replaced only with --force.\n"
        f"# sha256 {_digest(text)}\n{text}"
    )


def is_unedited(text: str) -> bool:
    """Return whether a unit file was installed by ``service install`` and not edited since."""
    head, _, rest = text.partition("\n")
    line = _SUM.match(rest)
    return bool(_HEAD.match(head) and line and line[1] == _digest(rest[line.end() :]))


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()

"""Collect the parts of a bug report: versions, settings, checks, logs, and the newest run."""

from __future__ import annotations

import getpass
import json
import os
import platform
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from edgefed.cli.common.context import Globals
from edgefed.cli.common.run_folders import PLACES
from edgefed.cli.support.redaction import REMOVED, Redactor, is_secret_name

if TYPE_CHECKING:
    from edgefed.config.loading.load import Effective

LOG_BYTES = 256 * 1024
"""Most bytes of one log."""

EVENT_BYTES = 1024 * 1024
"""Most bytes of the newest run's events."""

MOST_LOGS = 20
"""Most logs in a report."""

MOST_RUNS = 50
"""Newest runs whose events are read for names of devices."""

COMMAND = "alerts.command"
"""The setting of an operator's command."""

LEAST_ALERT_SECRET = 8
"""Characters below which an argument of that command is a word, such as an option."""

LOG_PLACES = ("logs/*.log", "demo/*/logs/*.log")
"""Where this machine's state folder has logs."""


@dataclass(frozen=True)
class ReportPart:
    """One file of a report."""

    name: str
    text: str


@dataclass(frozen=True)
class ReportRequest:
    """The content of a report.

    Attributes:
        options: the common options.
        logs: files to read beside those of the state folder.
        lines: the last lines of each log.
        with_names: whether names of devices and hosts stay.
    """

    options: Globals
    logs: tuple[Path, ...] = ()
    lines: int = 500
    with_names: bool = False


def collect(request: ReportRequest) -> list[ReportPart]:
    """Return the parts, redacted. A part that cannot be read holds the reason."""
    settings, state = _settings(request.options)
    newest = _newest_run(state)
    events = "" if newest is None else _tail(newest / "events.jsonl", EVENT_BYTES)
    redact = _redactor(request, state, events)
    parts = {
        "versions.json": _versions(),
        "platform.json": _platform(),
        "settings.json": settings,
        "environment.json": sorted(name for name in os.environ if name.startswith("EDGEFED")),
        "doctor.json": _tried(lambda: _doctor(request.options)),
        "runs.json": _tried(lambda: _runs(state)),
    }
    made = [ReportPart(name, _pretty(redact.value(value))) for name, value in parts.items()]
    for number, log in enumerate(_logs(state, request.logs), 1):
        text = "\n".join(_tail(log, LOG_BYTES).splitlines()[-request.lines :])
        made.append(ReportPart(f"logs/{number:02d}.txt", redact.text(f"{log}\n{text}\n")))
    if newest is not None:
        recipe = _tail(newest / "recipe.toml", LOG_BYTES)
        made.append(ReportPart("newest-run/recipe.toml", redact.text(recipe)))
        made.append(ReportPart("newest-run/events.jsonl", redact.json_lines(events)))
    return made


def _redactor(request: ReportRequest, state: Path, events: str) -> Redactor:
    broker = _broker(request.options)
    login = broker.partition("://")[2].rpartition("@")[0]
    secrets = {value for name, value in os.environ.items() if is_secret_name(name)}
    secrets |= {part for part in (login, *login.split(":")) if part}
    secrets |= _alert_secrets(request.options)
    hosts = {socket.gethostname(), platform.node(), socket.getfqdn(), _host(broker)}
    devices = {path.name for path in state.glob("agents/*/*")} | _devices_in(events)
    for run in sorted(_run_folders(state), key=_changed_at, reverse=True)[:MOST_RUNS]:
        devices |= _devices_in(_head(run / "events.jsonl", LOG_BYTES))
    givers = set(re.findall(r'"by": "([^"]+)"', events))
    people = {_user(), *givers, *(giver.partition(".")[2] for giver in givers)}
    names = {"DEVICE": devices, "HOST": hosts - {"localhost", ""}, "USER": people - {"root", ""}}
    home = os.environ.get("HOME", "")
    return Redactor(secrets, names, home, with_names=request.with_names)


def _devices_in(events: str) -> set[str]:
    """Return the names of devices in events; logs may name devices of any run."""
    devices = set(re.findall(r'"(?:device|slowest)": "([^"]+)"', events))
    for listed in re.findall(r'"devices": (\[[^\]]*\])', events):
        devices |= set(re.findall(r'"([^"]+)"', listed))
    return devices


def _settings(options: Globals) -> tuple[Any, Path]:
    """Return the effective settings with their origins, and the state folder.

    Where the settings cannot be read, this is why, and the default folder.
    """
    from edgefed.config.fleet.settings import default_state_folder
    from edgefed.errors import EdgeFedError

    try:
        loaded = options.settings()
        return {
            one.key: {"value": _reportable(one), **one.origin.to_json()}
            for one in loaded.effective()
        }, loaded.value.state
    except EdgeFedError as error:
        return error.to_json(), options.state or default_state_folder()


def _broker(options: Globals) -> str:
    """Return the broker's address with its login, as it is written."""
    from edgefed.errors import EdgeFedError

    try:
        return options.settings().value.broker or ""
    except EdgeFedError:
        return options.broker or os.environ.get("EDGEFED_BROKER", "")


def _host(broker: str) -> str:
    host = broker.partition("://")[2].rpartition("@")[2]
    name = host.rpartition(":")[0] or host
    return "" if re.fullmatch(r"[\d.]+|\[.*\]?", name) else name  # addresses are found by form


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


def _versions() -> dict[str, str]:
    from edgefed.cli.support.version import versions

    return versions()


def _platform() -> dict[str, Any]:
    import psutil

    return {
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "distribution": _distribution(),
        "cores": os.cpu_count(),
        "memory": psutil.virtual_memory().total,
        "terminal": os.environ.get("TERM", ""),
        "language": os.environ.get("LC_ALL") or os.environ.get("LANG", ""),
    }


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return ""


def _doctor(options: Globals) -> Any:
    from edgefed.cli.fleet.doctor import find
    from edgefed.terminal import diagnostics

    return diagnostics.as_json(find(options))


def _runs(state: Path) -> Any:
    from edgefed.cli.common.local_runs import local_runs

    return local_runs(state)


def _newest_run(state: Path) -> Path | None:
    return max(_run_folders(state), key=_changed_at, default=None)


def _run_folders(state: Path) -> list[Path]:
    return [path for place in PLACES for path in state.glob(f"{place}/runs/r-*")]


def _changed_at(path: Path) -> float:
    """Return when a file was changed; 0 for one that is gone by now."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _logs(state: Path, more: tuple[Path, ...]) -> Iterator[Path]:
    """Yield the logs: those that were named, then the newest ones of the state folder."""
    logs = [path for place in LOG_PLACES for path in state.glob(place) if path.is_file()]
    logs.sort(key=_changed_at, reverse=True)
    yield from [*more, *logs][:MOST_LOGS]


def _head(path: Path, most: int) -> str:
    """Return the beginning of a file; nothing where it cannot be read."""
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return file.read(most).decode(errors="replace")
    except OSError:
        return ""


def _tail(path: Path, most: int) -> str:
    """Return the end of a file, from the start of a line; why it cannot be read instead."""
    try:
        if path.exists() and not path.is_file():
            return "cannot be read: not a file\n"  # a pipe would be waited for
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - most))
            text = file.read(most).decode(errors="replace")
    except OSError as error:
        return f"cannot be read: {error.strerror}\n"
    return text if size <= most else text.partition("\n")[2]


def _tried(make: Callable[[], Any]) -> Any:
    """Return the result, or the error: a report must not fail because of its contents."""
    from edgefed.errors import EdgeFedError

    try:
        return make()
    except EdgeFedError as error:
        return error.to_json()
    except Exception as error:
        return {"error": {"code": "internal", "message": f"{type(error).__name__}: {error}"}}


def _reportable(one: Effective) -> Any:
    """Return a value as a report tells it; arguments of an operator's command may be secrets."""
    from edgefed.config.loading.shown_values import shown_value

    if one.key == COMMAND and one.value:
        return [one.value[0], *(REMOVED for _ in one.value[1:])]
    # A report removes the broker's login itself, also from its logs.
    value = one.value if one.key == "broker" else shown_value(one)
    return str(value) if isinstance(value, Path) else value


def _alert_secrets(options: Globals) -> set[str]:
    """Return possible secrets in the settings of alerts, which logs may repeat."""
    from edgefed.errors import EdgeFedError

    try:
        alerts = options.settings().value.alerts
    except EdgeFedError:
        return set()
    address = urlsplit(alerts.webhook or "")
    parts = (address.path.strip("/"), address.query, *alerts.command[1:])
    return {part for part in parts if len(part) >= LEAST_ALERT_SECRET}


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n"

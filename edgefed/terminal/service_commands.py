"""Install, inspect and remove services: the common part of ``service`` of both programs."""

from __future__ import annotations

import os
import pwd
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from edgefed.errors import UsageError
from edgefed.process.clock import SystemClock, moment_of
from edgefed.process.installed_service import ServiceStatus, Systemd
from edgefed.process.service_unit import ServiceKind, ServiceUnit, sealed
from edgefed.terminal.common_options import CommonOptions
from edgefed.terminal.console import columns
from edgefed.terminal.units import ago

Memory = Annotated[
    str, typer.Option(metavar="SIZE", help="Most memory, such as 4G or 60%; without, no limit.")
]
Cpu = Annotated[
    str, typer.Option(metavar="PERCENT", help="Most CPU time: 100% is one core; without, no limit.")
]
RunAs = Annotated[str, typer.Option(metavar="USER", help="User that runs a system service.")]
Start = Annotated[
    bool, typer.Option("--start/--no-start", help="Enable and start it, or only write the unit.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the unit, and change nothing.")]
Force = Annotated[
    bool, typer.Option("--force", help="Also where the unit was edited or comes from elsewhere.")
]
Further = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- OPTIONS", help="Options of the service's command."),
]

LIMITS = {"memory": r"\d+(\.\d+)?[KMGT]?|\d+%", "cpu": r"[1-9]\d*%"}
LOGIN = re.compile(r"^mqtts?://[^/\s]*@")


@dataclass(frozen=True)
class Choices:
    """The options of ``service install``."""

    memory: str
    cpu: str
    run_as: str
    start: bool
    dry_run: bool
    force: bool


def manager() -> Systemd:
    """Return the service manager for this user."""
    return Systemd(SystemClock(), os.environ)


def unit_name(kind: ServiceKind, fleet: str | None) -> str:
    """Return the name of a unit's file; a machine has one agent, and may serve several fleets."""
    return f"edgefed-{kind}{f'-{fleet}' if fleet and kind != 'agent' else ''}.service"


def install(
    options: CommonOptions,
    kind: ServiceKind,
    command: Sequence[str],
    choices: Choices,
    check: Callable[[CommonOptions], None],
) -> None:
    """Install a service, or print its unit.

    Args:
        options: the common ones, which are those of the service.
        kind: the service.
        command: the program's subcommand and its options.
        choices: of the installation.
        check: raises an error if the service would not start with these options; not called where
            the broker is in a file that only the service reads.

    Raises:
        UsageError: a limit is not valid; ``service.password``; ``service.user``.
        EdgeFedError: as ``Systemd.install``, or of ``check``.
    """
    systemd = manager()
    unit = _unit(options, kind, command, choices, systemd)
    path, text = systemd.units / unit.name, sealed(unit.text(), Path(unit.command[0]).name)
    if choices.dry_run:
        options.note(f"{path}:")
        options.answer({"path": str(path), "text": text}, text.rstrip("\n"))
        return
    if not systemd.names_broker(kind):
        state = options.state or (Path("/var/lib", unit.folder) if unit.run_as else None)
        check(replace(options, state=state))
    systemd.check()
    if unit.run_as:
        _check_user(unit)
    systemd.install(unit.name, text, force=choices.force, start=choices.start)
    name = unit.name.removesuffix(".service")
    answer = {"service": name, "path": str(path), "started": choices.start}
    options.done(answer, f"installed{' and started' if choices.start else ''}: {path}")
    if systemd.user:
        options.note("to keep it after your session: loginctl enable-linger")


def _unit(
    options: CommonOptions,
    kind: ServiceKind,
    command: Sequence[str],
    choices: Choices,
    systemd: Systemd,
) -> ServiceUnit:
    if options.broker and LOGIN.match(options.broker):
        raise UsageError(
            "A unit file is readable by everybody and must not contain a password.",
            code="service.password",
            hint=f"put EDGEFED_BROKER=… into edgefed/{kind}.env beside the settings, mode 600",
        )
    for option, pattern in LIMITS.items():
        value = getattr(choices, option)
        if value and not re.fullmatch(pattern, value):
            raise UsageError(
                f"--{option}: '{value}' is not a limit.", hint="such as --memory 4G --cpu 150%"
            )
    config, state = options.config, options.state
    passed = replace(
        options, config=config and config.absolute(), state=None, json=False, no_color=False
    )
    program = Path(sys.executable).with_name("edgefed-agent" if kind == "agent" else "edgefed")
    return ServiceUnit(
        kind=kind,
        command=(str(program), *passed.words(), *command),
        name=unit_name(kind, options.fleet),
        run_as="" if systemd.user else choices.run_as,
        state=state and state.absolute(),
        memory=choices.memory,
        cpu=choices.cpu,
        fields=(("EDGEFED_FLEET", options.fleet),) if options.fleet else (),
        systemd=systemd.version(),
    )


def _check_user(unit: ServiceUnit) -> None:
    """Check that the user of a system service exists, and can reach the program."""
    try:
        pwd.getpwnam(unit.run_as)
    except KeyError as error:
        raise UsageError(
            f"There is no user {unit.run_as} to run the service.",
            code="service.user",
            hint=f"useradd --system --home-dir /var/lib/{unit.folder} {unit.run_as}, or --run-as",
        ) from error
    paths = (*Path(unit.command[0]).parents, *Path(sys.executable).resolve().parents)
    closed = [str(folder) for folder in paths if not folder.stat().st_mode & 0o001]
    if closed and unit.run_as != "root":
        raise UsageError(
            f"User {unit.run_as} cannot run the program: {closed[-1]} is closed to others.",
            code="service.user",
            hint="install EdgeFed into a virtual environment in /opt/edgefed",
        )


def show(options: CommonOptions, units: Sequence[str]) -> None:
    """Print the state of services."""
    systemd = manager()
    states = [systemd.status(unit) for unit in units]
    options.answer(
        [asdict(state) for state in states],
        "\n\n".join(columns(_rows(state)) for state in states),
        empty="no service is installed; see service install --help",
    )


def uninstall(options: CommonOptions, unit: str, *, force: bool) -> None:
    """Remove a service; state, credentials and settings stay."""
    path = manager().uninstall(unit, force=force)
    options.done({"removed": str(path)}, f"removed: {path}; state and credentials stay")


def _rows(state: ServiceStatus) -> list[tuple[str, str]]:
    def since(stamp: str) -> str:
        now = SystemClock().now()
        return ago((now - moment_of(stamp)).total_seconds()) if stamp else "-"

    watchdog = f"{state.watchdog_seconds:g} s, last sign of life {since(state.watchdog_at)}"
    return [
        ("service", state.service),
        ("installed", ("yes, edited" if state.edited else "yes") if state.installed else "no"),
        ("enabled", "yes" if state.enabled else "no"),
        ("state", state.state if state.active else f"{state.state}, result {state.result}"),
        ("since", since(state.since)),
        ("restarts", str(state.restarts)),
        ("watchdog", watchdog if state.watchdog_seconds else "none"),
    ]

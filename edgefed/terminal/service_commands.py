"""Install, inspect and remove services: what ``service`` of both programs has in common."""

from __future__ import annotations

import os
import pwd
import re
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from edgefed.errors import NotAllowedError, UnknownNameError, UsageError
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

SIZE = r"\d+(\.\d+)?[KMGT]?|\d+%"
PERCENT = r"[1-9]\d*%"
LOGIN = re.compile(r"^mqtts?://[^/\s]*@")


@dataclass(frozen=True)
class InstallChoices:
    """The choices of a ``service install`` command.

    Attributes:
        memory, cpu, run_as, start, dry_run, force: its options.
        further: options of the service's command.
    """

    memory: str
    cpu: str
    run_as: str
    start: bool
    dry_run: bool
    force: bool
    further: tuple[str, ...]


def systemd_here() -> Systemd:
    """Return the service manager for this user."""
    return Systemd(SystemClock(), os.environ)


def state_of(options: CommonOptions, kind: ServiceKind) -> Path | None:
    """Return the state folder of a service; None for the default one of a user's own."""
    if options.state is not None:
        return options.state.absolute()
    return None if systemd_here().user else Path("/var/lib", ServiceUnit(kind, ()).folder)


def make_unit(
    options: CommonOptions, kind: ServiceKind, command: Iterable[str], choices: InstallChoices
) -> ServiceUnit:
    """Return the unit of a service.

    Args:
        options: those before the command; the service gets ``--config``, ``--fleet``, ``--broker``
            and ``--state``.
        kind: the service.
        command: its subcommand and the options that the program adds.
        choices: of the installation.

    Raises:
        UsageError: a limit is not valid, or the broker's address has a password.
    """
    if options.broker and LOGIN.match(options.broker):
        raise UsageError(
            "A unit file is readable by everybody and must not contain a password.",
            code="service.password",
            hint=f"put EDGEFED_BROKER=… into edgefed/{kind}.env beside the settings, mode 600",
        )
    for option, value, pattern in (
        ("--memory", choices.memory, SIZE),
        ("--cpu", choices.cpu, PERCENT),
    ):
        if value and not re.fullmatch(pattern, value):
            raise UsageError(
                f"{option}: '{value}' is not a limit.", hint="such as --memory 4G --cpu 150%"
            )
    manager, fleet = systemd_here(), options.fleet
    config = options.config and options.config.absolute()
    passed = replace(options, config=config, state=None, json=False, no_color=False)
    part = "agent" if kind == "agent" else f"{kind}{f'-{fleet}' if fleet else ''}"
    return ServiceUnit(
        kind=kind,
        command=(*_program(kind), *passed.words(), *command, *choices.further),
        name=f"edgefed-{part}",
        run_as="" if manager.user else choices.run_as,
        state=options.state and options.state.absolute(),
        memory=choices.memory,
        cpu=choices.cpu,
        fields=(("EDGEFED_FLEET", fleet),) if fleet else (),
        systemd=manager.version(),
    )


def install_unit(options: CommonOptions, unit: ServiceUnit, choices: InstallChoices) -> None:
    """Install a service, or print its unit.

    Raises:
        UsageError: ``service.user``: the user that would run it does not exist.
        NotAllowedError: ``service.program`` or ``service.edited``.
        EdgeFedError: as ``Systemd.install``.
    """
    manager = systemd_here()
    text = sealed(unit.text(), "edgefed-agent" if unit.kind == "agent" else "edgefed")
    path = manager.units / unit.unit
    if choices.dry_run:
        options.note(f"{path}:")
        options.answer({"path": str(path), "text": text}, text.rstrip("\n"))
        return
    manager.check()
    if unit.run_as:
        _check_user(unit)
    manager.install(unit.unit, text, force=choices.force, start=choices.start)
    done = "installed and started" if choices.start else "installed"
    options.done(
        {
            "service": unit.unit.removesuffix(".service"),
            "path": str(path),
            "started": choices.start,
        },
        f"{done}: {path}",
    )
    if not manager.lingers():
        options.note("it ends with your session; to keep it: loginctl enable-linger")


def show_status(options: CommonOptions, units: Iterable[str]) -> None:
    """Print the state of services."""
    manager = systemd_here()
    states = [manager.status(unit) for unit in units]
    options.answer(
        [asdict(state) for state in states],
        "\n\n".join(columns(_rows(state)) for state in states),
        empty="no service is installed; see service install --help",
    )


def remove_unit(options: CommonOptions, unit: str, *, force: bool) -> None:
    """Remove a service; state, credentials and settings stay."""
    path = systemd_here().uninstall(unit, force=force)
    options.done({"removed": str(path)}, f"removed: {path}; state and credentials stay")


def installed_units(patterns: Iterable[str]) -> list[str]:
    """Return the installed units that match one of some patterns."""
    manager = systemd_here()
    return [unit for pattern in patterns for unit in manager.installed(f"{pattern}.service")]


def one_unit(patterns: Iterable[str]) -> str:
    """Return the only installed unit that matches.

    Raises:
        UnknownNameError: ``service.unknown``: none does.
        UsageError: ``service.several``: more than one does.
    """
    units = installed_units(patterns)
    if not units:
        raise UnknownNameError("No such service is installed.", code="service.unknown")
    if len(units) > 1:
        raise UsageError(
            f"Several services match: {', '.join(units)}.",
            code="service.several",
            hint="name the fleet with --fleet",
        )
    return units[0]


def _rows(state: ServiceStatus) -> list[tuple[str, str]]:
    clock = SystemClock()

    def since(stamp: str) -> str:
        return ago((clock.now() - moment_of(stamp)).total_seconds()) if stamp else "-"

    if not state.installed:
        return [("service", state.service), ("installed", "no")]
    watchdog = f"{state.watchdog_seconds:g} s, last sign of life {since(state.watchdog_at)}"
    return [
        ("service", state.service),
        ("installed", "yes, edited" if state.edited else "yes"),
        ("enabled", "yes" if state.enabled else "no"),
        ("state", state.state if state.active else f"{state.state}, result {state.result}"),
        ("since", since(state.since)),
        ("restarts", str(state.restarts)),
        ("watchdog", watchdog if state.watchdog_seconds else "none"),
    ]


def _program(kind: ServiceKind) -> tuple[str, ...]:
    """Return the words that start a program of this installation."""
    name = "edgefed-agent" if kind == "agent" else "edgefed"
    script = Path(sys.executable).with_name(name)
    if script.exists():
        return (str(script),)
    module = "device_agent.commands.cli" if kind == "agent" else "edgefed.cli.main"
    return (sys.executable, "-m", module)


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
    for program in (Path(unit.command[0]), Path(sys.executable).resolve()):
        closed = [folder for folder in program.parents if not folder.stat().st_mode & 0o001]
        if closed and unit.run_as != "root":
            raise NotAllowedError(
                f"User {unit.run_as} cannot run {program}: {closed[-1]} is closed to others.",
                code="service.program",
                hint="install EdgeFed into a virtual environment in /opt/edgefed",
            )

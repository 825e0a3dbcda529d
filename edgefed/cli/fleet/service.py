"""``edgefed service``: coordinator, broker and gateway as services of systemd."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from edgefed.cli.common.context import Globals, globals_of
from edgefed.cli.common.help import examples
from edgefed.terminal.command_line import CommandLine
from edgefed.terminal.service_commands import (
    Cpu,
    DryRun,
    Force,
    Further,
    InstallChoices,
    Memory,
    RunAs,
    Start,
    install_unit,
    installed_units,
    make_unit,
    one_unit,
    remove_unit,
    show_status,
    state_of,
    systemd_here,
)

app = CommandLine(help="Run coordinator, broker or gateway as a service of systemd.")


class Service(str, Enum):
    """A service of this machine."""

    coordinator = "coordinator"
    broker = "broker"
    gateway = "gateway"


COMMANDS = {
    Service.coordinator: ("coordinator",),
    Service.broker: ("broker", "up"),
    Service.gateway: ("gateway", "run"),
}

Kind = Annotated[Service, typer.Argument(help="The service.", show_default=False)]


@app.command(
    epilog=examples(
        "edgefed service install broker",
        "edgefed service install coordinator --memory 8G",
        "edgefed --fleet hall-2 service install gateway -- --upstream-fleet plant --name hall-2",
    ),
    json=True,
)
def install(
    context: typer.Context,
    service: Kind,
    further: Further = None,
    *,
    memory: Memory = "",
    cpu: Cpu = "",
    run_as: RunAs = "edgefed",
    start: Start = True,
    dry_run: DryRun = False,
    force: Force = False,
) -> None:
    """Write the systemd unit of a service, enable it, and start it.

    Root installs a system service with its state in /var/lib/edgefed; any other user a service of
    their own. The common options before `service` are those of the service.
    """
    options = globals_of(context)
    choices = InstallChoices(memory, cpu, run_as, start, dry_run, force, tuple(further or ()))
    unit = make_unit(options, service.value, COMMANDS[service], choices)
    if not dry_run and not systemd_here().names_broker(service.value):
        _check_credentials(options, service)
    install_unit(options, unit, choices)


def _check_credentials(options: Globals, service: Service) -> None:
    """Check that the fleet was created in the service's state folder, or that a broker is set.

    Raises:
        NotAllowedError: ``trust.missing``.
    """
    from dataclasses import replace

    from edgefed.config.fleet.broker_address import credentials_folder, trust_folder
    from edgefed.errors import NotAllowedError

    state = state_of(options, service.value)
    settings = replace(options, state=state).settings().value
    plain = settings.broker is not None and not settings.broker.startswith("mqtts://")
    if plain or credentials_folder(trust_folder(settings), ("coordinator",)):
        return
    raise NotAllowedError(
        f"There is no fleet {settings.fleet} in {settings.state}.",
        code="trust.missing",
        hint="create it as the service's user: edgefed --state FOLDER init; for a fleet without"
        " certificates, --broker mqtt://127.0.0.1:1883",
    )


@app.command(epilog=examples("edgefed service status", "edgefed service status broker"), json=True)
def status(
    context: typer.Context,
    service: Annotated[
        Service | None, typer.Argument(help="The service; by default all.", show_default=False)
    ] = None,
) -> None:
    """Show whether services are installed and active, since when, restarts and watchdog."""
    options = globals_of(context)
    kinds = [service] if service else list(Service)
    show_status(options, installed_units(_patterns(options, *kinds)))


@app.command(epilog=examples("edgefed service uninstall coordinator"), json=True)
def uninstall(context: typer.Context, service: Kind, *, force: Force = False) -> None:
    """Stop a service and delete its unit; state, credentials and settings stay."""
    options = globals_of(context)
    remove_unit(options, one_unit(_patterns(options, service)), force=force)


def _patterns(options: Globals, *kinds: Service) -> list[str]:
    names = [f"edgefed-{kind.value}" for kind in kinds]
    if options.fleet:
        return [f"{name}-{options.fleet}" for name in names]
    return [pattern for name in names for pattern in (name, f"{name}-*")]

"""``edgefed service``: coordinator, broker and gateway as services of systemd."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any

import typer

from edgefed.cli.common.context import Globals, globals_of
from edgefed.cli.common.help import examples
from edgefed.terminal import service_commands as service
from edgefed.terminal.command_line import CommandLine
from edgefed.terminal.common_options import CommonOptions

app = CommandLine(help="Run coordinator, broker or gateway as a service of systemd.")


class Kind(str, Enum):
    """A service of this machine."""

    coordinator = "coordinator"
    broker = "broker"
    gateway = "gateway"


COMMANDS = {
    "coordinator": ["coordinator"],
    "broker": ["broker", "up"],
    "gateway": ["gateway", "run"],
}

Chosen = Annotated[Kind, typer.Argument(metavar="SERVICE", help="The service.", show_default=False)]


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
    kind: Chosen,
    further: service.Further = None,
    *,
    memory: service.Memory = "",
    cpu: service.Cpu = "",
    run_as: service.RunAs = "edgefed",
    start: service.Start = True,
    dry_run: service.DryRun = False,
    force: service.Force = False,
) -> None:
    """Write the systemd unit of a service, enable it, and start it.

    Root installs a system service with its state in /var/lib/edgefed; any other user a service of
    their own. The common options before `service` are those of the service.
    """
    choices = service.Choices(memory, cpu, run_as, start, dry_run, force)
    command, own = COMMANDS[kind.value], further or []
    parser: Any = context.find_root().command
    for word in command:
        parser = parser.get_command(context, word)
    # Refuses options that the command would refuse when the service starts
    parser.make_context(" ".join(command), [*own], context.find_root())
    service.install(globals_of(context), kind.value, [*command, *own], choices, _check)


def _check(options: CommonOptions) -> None:
    """Check that the fleet was created in the service's state folder, or that a broker is set.

    Raises:
        NotAllowedError: ``trust.missing``.
    """
    from edgefed.config.fleet.broker_address import credentials_folder, trust_folder
    from edgefed.errors import NotAllowedError

    settings = Globals(**vars(options)).settings().value
    plain = settings.broker is not None and not settings.broker.startswith("mqtts://")
    if not (plain or credentials_folder(trust_folder(settings), ("coordinator",))):
        raise NotAllowedError(
            f"There is no fleet {settings.fleet} in {settings.state}.",
            code="trust.missing",
            hint="create it as the service's user: edgefed --state FOLDER init; for a fleet without"
            " certificates, --broker mqtt://127.0.0.1:1883",
        )


@app.command(epilog=examples("edgefed service status", "edgefed service status broker"), json=True)
def status(
    context: typer.Context,
    kind: Annotated[
        Kind | None,
        typer.Argument(metavar="[SERVICE]", help="The service; by default all installed."),
    ] = None,
) -> None:
    """Show whether services are installed and active, since when, restarts and watchdog."""
    options, units = globals_of(context), service.manager().units
    all_units = (
        path.name for name in Kind for path in units.glob(f"edgefed-{name.value}*.service")
    )
    chosen = [service.unit_name(kind.value, options.fleet)] if kind else sorted(all_units)
    service.show(options, chosen)


@app.command(epilog=examples("edgefed service uninstall coordinator"), json=True)
def uninstall(context: typer.Context, kind: Chosen, *, force: service.Force = False) -> None:
    """Stop a service and delete its unit; state, credentials and settings stay."""
    options = globals_of(context)
    service.uninstall(options, service.unit_name(kind.value, options.fleet), force=force)

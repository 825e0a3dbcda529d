"""``edgefed-agent service``: the agent as a service of systemd."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from device_agent.commands.options import Data, Name, agent_settings
from edgefed.terminal.command_line import CommandLine
from edgefed.terminal.common_options import common_options
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
    make_unit,
    one_unit,
    remove_unit,
    show_status,
    state_of,
    systemd_here,
)

if TYPE_CHECKING:
    from edgefed.config.fleet.settings import AgentSettings

app = CommandLine(help="Run the agent as a service of systemd.")

UNIT = "edgefed-agent"


@app.command(json=True)
def install(
    context: typer.Context,
    further: Further = None,
    *,
    name: Name = None,
    source: Data = None,
    memory: Memory = "",
    cpu: Cpu = "",
    run_as: RunAs = "edgefed",
    start: Start = True,
    dry_run: DryRun = False,
    force: Force = False,
) -> None:
    """Write the systemd unit of the agent, enable it, and start it.

    Root installs a system service with its state in /var/lib/edgefed-agent; any other user a
    service of their own. The common options before `service` are those of the service; further
    options of `edgefed-agent run` follow a `--`.
    """
    options = common_options(context)
    choices = InstallChoices(memory, cpu, run_as, start, dry_run, force, tuple(further or ()))
    typed = (("--name", name), ("--data", source))
    words = [word for option, value in typed if value for word in (option, value)]
    unit = make_unit(options, "agent", ("run", *words), choices)
    if not dry_run:
        here = replace(options, state=state_of(options, "agent"))
        settings = agent_settings(here, name=name, source=source)
        _check(settings, names_broker=systemd_here().names_broker("agent"))
    install_unit(options, unit, choices)


def _check(settings: AgentSettings, *, names_broker: bool) -> None:
    """Check that the service would start: it is enrolled, or a broker is set, and it has data.

    Raises:
        NotAllowedError: ``trust.missing``.
        UsageError: ``data.unset``.
    """
    from device_agent.identity.device_name import device_name
    from edgefed.config.fleet.broker_address import credentials_folder, trust_folder
    from edgefed.errors import NotAllowedError, UsageError

    name = device_name(settings)
    plain = settings.broker is not None and not settings.broker.startswith("mqtts://")
    if not (plain or names_broker or credentials_folder(trust_folder(settings), (name,))):
        raise NotAllowedError(
            f"Device {name} is not enrolled in {settings.state}.",
            code="trust.missing",
            hint="as the service's user: edgefed-agent --state FOLDER enroll TOKEN",
        )
    if not settings.data:
        raise UsageError(
            "The service has no data to train on.",
            code="data.unset",
            hint="--data npz:FILE, or data in /etc/edgefed/edgefed-agent.toml",
        )


@app.command(json=True)
def status(context: typer.Context) -> None:
    """Show whether the service is installed and active, since when, restarts and watchdog."""
    show_status(common_options(context), [f"{UNIT}.service"])


@app.command(json=True)
def uninstall(context: typer.Context, *, force: Force = False) -> None:
    """Stop the service and delete its unit; state, credentials and settings stay."""
    remove_unit(common_options(context), one_unit([UNIT]), force=force)

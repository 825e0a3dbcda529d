"""``edgefed-agent service``: the agent as a service of systemd."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from device_agent.commands.options import Data, Name, agent_settings
from edgefed.terminal import service_commands as service
from edgefed.terminal.command_line import CommandLine
from edgefed.terminal.common_options import CommonOptions, common_options

app = CommandLine(help="Run the agent as a service of systemd.")

UNIT = service.unit_name("agent", None)


@app.command(json=True)
def install(
    context: typer.Context,
    further: service.Further = None,
    *,
    name: Name = None,
    source: Data = None,
    memory: service.Memory = "",
    cpu: service.Cpu = "",
    run_as: service.RunAs = "edgefed",
    start: service.Start = True,
    dry_run: service.DryRun = False,
    force: service.Force = False,
    updates: Annotated[
        bool, typer.Option("--updates", help="Run the agent under its updater.")
    ] = False,
) -> None:
    """Write the systemd unit of the agent, enable it, and start it.

    Root installs a system service with its state in /var/lib/edgefed-agent; any other user a
    service of their own. The common options before `service` are those of the service; further
    options of `edgefed-agent run` follow a `--`.
    """
    if source and ":" in source:  # the service has another current folder
        form, _, path = source.partition(":")
        source = f"{form}:{Path(path).absolute()}"
    typed = (("--name", name), ("--data", source))
    named = [word for pair in typed if pair[1] for word in pair if word]
    run = ["update", "run", *named[: 2 * bool(name)], "--", *named[2 * bool(name) :]]
    words = [*(run if updates else ["run", *named]), *(further or ())]
    choices = service.Choices(memory, cpu, run_as, start, dry_run, force)

    def check(options: CommonOptions) -> None:
        _check(options, name, source)

    service.install(common_options(context), "agent", words, choices, check)


def _check(options: CommonOptions, name: str | None, source: str | None) -> None:
    """Check that the service would start: it is enrolled, or a broker is set, and it has data.

    Raises:
        NotAllowedError: ``trust.missing``.
        UsageError: ``data.unset``.
    """
    from device_agent.identity.device_name import device_name
    from edgefed.config.fleet.broker_address import credentials_folder, trust_folder
    from edgefed.errors import NotAllowedError, UsageError

    settings = agent_settings(options, name=name, source=source)
    device = device_name(settings)
    plain = settings.broker is not None and not settings.broker.startswith("mqtts://")
    if not (plain or credentials_folder(trust_folder(settings), (device,))):
        raise NotAllowedError(
            f"Device {device} is not enrolled in {settings.state}.",
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
    service.show(common_options(context), [UNIT])


@app.command(json=True)
def uninstall(context: typer.Context, *, force: service.Force = False) -> None:
    """Stop the service and delete its unit; state, credentials and settings stay."""
    service.uninstall(common_options(context), UNIT, force=force)

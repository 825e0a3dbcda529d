"""``edgefed gateway``: the gateways of sites, and the program that is one."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefed.cli.common.context import globals_of
from edgefed.cli.common.help import examples
from edgefed.cli.fleet.membership import (
    EXPIRES,
    Expires,
    Qr,
    Yes,
    end_membership,
    enroll_here,
    invite,
)
from edgefed.process.stop_signals import stop_signals
from edgefed.terminal.command_line import CommandLine
from edgefed.terminal.console import columns, data, json_out, talk
from edgefed.terminal.logs import LogFormat, LogFormatOption, introduce, start_log
from edgefed.terminal.metrics_server import MetricsAddress, serve_metrics

if TYPE_CHECKING:
    from edgefed.config.fleet.settings import Settings
    from edgefed.gateway.gateway import Upstream

app = CommandLine(help="Join sites with brokers of their own to one fleet.")

Name = Annotated[str, typer.Argument(help="Name of the gateway.", show_default=False)]


@app.command(
    epilog=examples(
        "edgefed --fleet hall-2 gateway run --upstream-fleet plant --name hall-2",
        "edgefed --fleet hall-2 gateway run --upstream mqtt://192.0.2.7:1883"
        " --upstream-fleet plant --name hall-2",
    )
)
def run(
    context: typer.Context,
    *,
    upstream_fleet: Annotated[
        str, typer.Option(help="The fleet to which the site belongs.", show_default=False)
    ],
    name: Annotated[
        str, typer.Option(help="Name of the gateway in that fleet.", show_default=False)
    ],
    upstream: Annotated[
        str,
        typer.Option(
            metavar="URL", help="Broker of that fleet; without, that of the gateway's credentials."
        ),
    ] = "",
    metrics: MetricsAddress = "",
    log_format: LogFormatOption = LogFormat.text,
) -> None:
    """Run the gateway of a site in the foreground until Ctrl-C or SIGTERM.

    The site is the fleet of --fleet, with the broker of --broker: its devices are enrolled there.
    A gateway takes the place of the site's coordinator. If it is killed, it resumes when it is
    started again with the same state folder.
    """
    options = globals_of(context)
    with stop_signals() as signals:
        settings = options.settings().value
        start_log(quiet=options.quiet, verbose=options.verbose, form=log_format)
        from edgefed.cli.fleet.coordinator import service_settings
        from edgefed.coordinator.process.service_metrics import SERVICE_METRICS
        from edgefed.errors import InterruptedRunError
        from edgefed.gateway.gateway import Gateway
        from edgefed.process.clock import SystemClock
        from edgefed.process.service_manager import ServiceManager

        clock = SystemClock()
        there = _upstream(settings, upstream_fleet, name, upstream)
        site = service_settings(settings, clock, gateway=name)
        gateway = Gateway(there, site, clock, ServiceManager(os.environ, clock))
        signals.call(gateway.stop)
        serve_metrics(metrics, SERVICE_METRICS, gateway.metrics.read)
        if not options.quiet:
            introduce(
                f"gateway {name} of fleet {upstream_fleet} on {there.address},"
                f" for site {settings.fleet} on {site.address}",
                log_format,
            )
        gateway.serve()
        if signals.number == signal.SIGINT:
            raise InterruptedRunError("Interrupted.", hint="the same command resumes")


def _upstream(settings: Settings, fleet: str, name: str, broker: str) -> Upstream:
    """Return the fleet upstream, with the gateway's credentials in it.

    Raises:
        UsageError: the site has the fleet's own name, or a name is not valid.
        NotAllowedError: there are no credentials, or the connection would not be encrypted.
    """
    from edgefed.config.fleet.broker_address import broker_address
    from edgefed.errors import NotAllowedError, UsageError
    from edgefed.gateway.gateway import Upstream
    from edgefed.trust.certificates import NAME

    for word in (fleet, name):
        if not NAME.fullmatch(word):
            raise UsageError(
                f"'{word}' cannot be the name of a fleet or a gateway.",
                code="trust.name",
                hint="use up to 64 lower-case letters, digits and hyphens",
            )
    if fleet == settings.fleet:
        raise UsageError(
            f"The site cannot have the name of its fleet, {fleet}.",
            code="gateway.fleet",
            hint="name the site with --fleet, before the command: edgefed --fleet SITE gateway run",
        )
    there = settings.model_copy(update={"fleet": fleet, "broker": broker or None})
    address = broker_address(there, (name,))
    if not broker and address.credentials is None:
        raise NotAllowedError(
            f"This machine has no credentials of gateway {name} of fleet {fleet}.",
            code="trust.missing",
            hint="check --name and --upstream-fleet, or enrol: edgefed gateway enroll TOKEN;"
            " for a fleet without certificates, name its broker with --upstream",
        )
    return Upstream(fleet, name, address, settings.state / "gateways" / fleet / name)


@app.command(
    "invite",
    epilog=examples("edgefed gateway invite hall-2 --devices 200 --samples 500000"),
    json=True,
)
def invite_(
    context: typer.Context,
    name: Name,
    *,
    devices: Annotated[int, typer.Option(min=1, help="Most devices of its site.")] = 1000,
    samples: Annotated[
        int, typer.Option(min=1, help="Most samples of its site's devices together.")
    ] = 10_000_000,
    expires: Expires = EXPIRES,
    qr: Qr = False,
) -> None:
    """Print a token with which one gateway enrols: edgefed gateway enroll TOKEN."""
    options = globals_of(context)
    invite(options, "gateway", name, expires, qr=qr, devices=devices, samples=samples)


@app.command(epilog=examples("edgefed gateway enroll TOKEN"), json=True)
def enroll(
    context: typer.Context,
    token: Annotated[str, typer.Argument(help="What gateway invite printed.", show_default=False)],
) -> None:
    """Exchange a token for the credentials of a gateway on this machine.

    The private key is made here and stays here. After a kill at any moment, the same command
    resumes.
    """
    options = globals_of(context)
    answer = enroll_here(options, token, ("gateway",))
    if options.json:
        json_out(answer)
    elif not options.quiet:
        data("gateway {name} of fleet {fleet}".format(**answer))
        run = f"gateway run --upstream-fleet {answer['fleet']} --name {answer['name']}"
        site = "SITE" if options.fleet in (None, answer["fleet"]) else options.fleet
        init, up, run = (
            options.command(words, fleet=site, broker=None) for words in ("init", "broker up", run)
        )
        talk(f"next, for a new site: {init}\n  {up}\n  {run}")


@app.command(
    "list", epilog=examples("edgefed gateway list", "edgefed gateway list --json"), json=True
)
def list_(context: typer.Context) -> None:
    """List gateways: whether they are connected, and the devices and samples of their sites."""
    options = globals_of(context)
    with options.connected() as coordinator:
        rows: list[dict[str, Any]] = coordinator.ask("gateways")
    head = ("NAME", "SITE", "STATE", "DEVICES", "ONLINE", "SAMPLES")
    keys = ("name", "site", "state", "devices", "online", "samples")
    options.answer(
        rows,
        columns([head, *(tuple(_of_most(row, key) for key in keys) for row in rows)]),
        empty=f"no gateway yet; invite one: {options.command('gateway invite NAME')}",
    )


def _of_most(row: dict[str, Any], key: str) -> str:
    """Return a value of a gateway, with the most that its invitation allows."""
    most = row.get(f"most_{key}")
    return str(row[key]) if most is None else f"{row[key]} of {most}"


@app.command(epilog=examples("edgefed gateway remove hall-2"), json=True)
def remove(context: typer.Context, name: Name, *, yes: Yes = False) -> None:
    """Remove a gateway permanently, with all devices of its site: its certificate is revoked."""
    done = "removed: gateway {name}; its certificate is revoked"
    end_membership(globals_of(context), done, "gateway", name, yes=yes)

"""``edgefed broker``: run a broker, print a configuration for one, or check one."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefed.cli.common.context import Globals, globals_of
from edgefed.cli.common.help import examples
from edgefed.terminal.command_line import CommandLine
from edgefed.terminal.console import columns, talk

if TYPE_CHECKING:
    from broker.check import CheckReport
    from broker.secured_files import SecuredFiles
    from broker.start_broker import RunningBroker
    from edgefed.config.values.address import Address

app = CommandLine(help="Run, configure and check the MQTT broker.")


class BrokerKind(str, Enum):
    """The broker to run."""

    auto = "auto"
    mosquitto = "mosquitto"
    embedded = "embedded"


Bind = Annotated[
    str | None,
    typer.Option(
        metavar="HOST[:PORT]",
        help="Address to listen on; by default the host of the broker setting.",
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        min=1, max=65535, help="Port to listen on; by default the port of the broker setting."
    ),
]
Anonymous = Annotated[
    bool,
    typer.Option("--allow-anonymous", help="Accept clients without a login."),
]


@app.command(
    epilog=examples(
        "edgefed broker up",
        "edgefed broker up --port 1884 --kind embedded",
        "edgefed --insecure broker up --bind 0.0.0.0 --allow-anonymous",
    ),
    json=True,
)
def up(
    context: typer.Context,
    *,
    port: Port = None,
    bind: Bind = None,
    kind: Annotated[
        BrokerKind, typer.Option(help="auto uses Mosquitto if it is installed.")
    ] = BrokerKind.auto,
    folder: Annotated[
        Path | None,
        typer.Option(help="Folder for log and database; by default STATE/broker/FLEET."),
    ] = None,
    allow_anonymous: Anonymous = False,
) -> None:
    """Run a broker in the foreground until Ctrl-C.

    On the machine of the fleet's authority (edgefed init), it is a Mosquitto with TLS that admits
    holders of certificates only. It is restarted when it ends, and reads access rules and
    revocations again as soon as they change. A database that it cannot open is moved aside; one
    that it opens slowly may take 10 minutes. It also uses the next two ports: for enrolment, which
    has a Mosquitto of its own, and for commands.

    Without an authority, it is a broker for one machine or a closed network.
    """
    options = globals_of(context)
    with ExitStack() as stack:
        from edgefed.cli.programs import secured_broker
        from edgefed.files.writing import make_state_private
        from edgefed.process.lock import FolderLock

        settings = options.settings().value
        make_state_private(settings.state)
        place = folder or settings.state / "broker" / settings.fleet
        stack.callback(FolderLock(place, "edgefed broker up").release)
        files = secured_broker.files_of(settings)
        if files is not None:
            secured_broker.refuse_plain_options(
                settings.fleet, allow_anonymous=allow_anonymous, kind=kind is BrokerKind.embedded
            )
            address = secured_broker.listen_address(files, bind, port)
            secured_broker.run(options, files, address, place)
            return
        address = _address(options, bind, port)
        secured_broker.refuse_without_tls(address, settings)
        _run_without_tls(options, address, place, kind, allow_anonymous=allow_anonymous)


@app.command(
    epilog=examples(
        "edgefed broker config --files /etc/mosquitto/edgefed",
        "edgefed broker config --files /etc/mosquitto/edgefed --enrolment",
        "edgefed --fleet lab broker config --acl > edgefed.acl",
        "edgefed broker config --bind 0.0.0.0 --password-file USERS --acl-file edgefed.acl",
    )
)
def config(
    context: typer.Context,
    port: Port = None,
    bind: Bind = None,
    allow_anonymous: Anonymous = False,
    acl: Annotated[
        bool, typer.Option("--acl", help="Print the ACL file for the fleet's users instead.")
    ] = False,
    password_file: Annotated[
        Path | None, typer.Option(help="Password file created by mosquitto_passwd.")
    ] = None,
    acl_file: Annotated[
        Path | None, typer.Option(help="Path at which the ACL file will be installed; see --acl.")
    ] = None,
    files: Annotated[
        Path | None,
        typer.Option(help="Folder from which the system's Mosquitto reads certificates and rules."),
    ] = None,
    enrolment: Annotated[
        bool, typer.Option("--enrolment", help="Print that of the broker for enrolment instead.")
    ] = False,
) -> None:
    """Print a Mosquitto configuration for this fleet.

    On the machine of the fleet's authority it is one with TLS. To run Mosquitto as a system
    service, put the output into /etc/mosquitto/conf.d, and copy the files that it names after
    every change; edgefed broker up does both by itself. Enrolment needs a second Mosquitto, with
    the configuration that --enrolment prints and at most 64 open files.

    Without an authority it is one for users with passwords, or for everybody on this machine.
    """
    from broker.acl import password_acl
    from broker.configuration import configuration
    from edgefed.cli.programs import secured_broker

    options = globals_of(context)
    settings = options.settings().value
    secured = secured_broker.files_of(settings)
    if secured is not None:
        secured_broker.refuse_plain_options(
            settings.fleet,
            allow_anonymous=allow_anonymous,
            password_file=password_file is not None,
            acl_file=acl_file is not None,
        )
        text = _secured_text(
            secured, settings.fleet, bind, port, files, acl=acl, enrolment=enrolment
        )
    elif enrolment:
        raise secured_broker.no_enrolment(settings.fleet)
    elif acl:
        text = password_acl(settings.fleet)
    else:
        address = _address(options, bind, port)
        text = configuration(
            address,
            allow_anonymous=_anonymous(allow_anonymous, password_file),
            passwords=password_file,
            acl=acl_file,
        )
    options.answer({"acl" if acl else "configuration": text}, text.rstrip())


@app.command(
    epilog=examples(
        "edgefed broker check",
        "edgefed --broker mqtts://192.0.2.7:8883 broker check --json",
    ),
    json=True,
)
def check(
    context: typer.Context,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for each answer.")] = 5.0,
) -> None:
    """Test the broker with messages, and show latency and limits; try the rules of one with TLS.

    Use it if devices do not come online. With TLS, it tries actions that are forbidden to
    strangers, devices and viewers. On the machine of the fleet's authority it does so with
    certificates of its own, which are valid for ten minutes and withdrawn at the end; elsewhere it
    names the rules that it did not try. The exit code is 3 if no broker answers, and 8 if the
    broker does not meet a requirement or a rule does not hold.
    """
    from dataclasses import asdict

    options = globals_of(context)
    from broker.check import check as check_broker
    from edgefed.cli.programs import secured_broker
    from edgefed.config.fleet.broker_address import broker_address
    from edgefed.errors import CheckFailedError

    settings = options.settings().value
    address = broker_address(settings)
    report = check_broker(address, timeout, fleet=settings.fleet)
    rules = secured_broker.rule_reports(settings, address, timeout) if address.tls else []
    good = report.ok and all(rule.outcome != "broken" for rule in rules)
    listed = {"rules": secured_broker.rules_as_json(rules)} if address.tls else {}
    rows = [_listing(report), *([secured_broker.rules_as_rows(rules)] if rules else [])]
    options.answer({**asdict(report), **listed, "ok": good}, "\n".join(rows))
    if not good:
        raise typer.Exit(CheckFailedError.exit_code)


def _secured_text(
    secured: SecuredFiles,
    fleet: str,
    bind: str | None,
    port: int | None,
    folder: Path | None,
    *,
    acl: bool,
    enrolment: bool,
) -> str:
    """Return the configuration with TLS, or the access rules as they are now."""
    from broker.mosquitto import PLUGIN_COPY, PLUGIN_HINT, find_plugin
    from broker.secured_broker import UNLIMITED
    from broker.secured_files import SecuredFiles, write_enrolment_access
    from edgefed.cli.programs import secured_broker

    if not all(path.exists() for path in secured.of_enrolment()):  # made by an older version
        write_enrolment_access(secured.access.parent, fleet)
    secured.require()
    if acl:
        return (secured.enrolment_acl if enrolment else secured.acl).read_text()
    files, plugin = secured, find_plugin()
    if plugin is None and not enrolment:
        talk(f"the plug-in for Mosquitto is not built; {UNLIMITED}; {PLUGIN_HINT}")
    if folder is not None:
        files, plugin = SecuredFiles(folder, folder), plugin and folder / PLUGIN_COPY
    address = secured_broker.listen_address(secured, bind, port)
    return secured_broker.configuration_text(files, address, plugin, enrolment=enrolment)


def _address(options: Globals, bind: str | None, port: int | None) -> Address:
    """Return the address to listen on: the broker setting, overridden by the typed one."""
    from broker.address import parse_bind
    from edgefed.config.fleet.broker_address import listen_address
    from edgefed.config.values.address import parse_address
    from edgefed.errors import UsageError

    address = listen_address(options.settings().value)
    host, own = parse_bind(bind) if bind else (address.host, None)
    if own and port and own != port:
        raise UsageError(f"--bind {bind} and --port {port} name two ports.", hint="leave one out")
    # Read again, so that the port of TLS is refused here too.
    listen = replace(address, host=host, port=own or port or address.port)
    return parse_address(listen.with_login())


def _anonymous(typed: bool, password_file: Path | None) -> bool | None:
    """Return whether to let everybody in; None for loopback only, unless there are users."""
    return True if typed else False if password_file else None


def _run_without_tls(
    options: Globals, address: Address, folder: Path, kind: BrokerKind, *, allow_anonymous: bool
) -> None:
    """Run a broker for this machine or a closed network until SIGTERM or Ctrl-C."""
    from broker.foreground import sigterm_as_event, wait_for_end
    from broker.start_broker import start_broker

    with sigterm_as_event() as stop:
        broker = start_broker(
            address, folder, kind.value, allow_anonymous=allow_anonymous or None, tell=talk
        )
        try:
            _announce(broker, options)
            wait_for_end(broker, stop)
        finally:
            broker.stop()


def _announce(broker: RunningBroker, options: Globals) -> None:
    options.answer(
        {"address": str(broker.address), "kind": broker.name, "pid": broker.pid},
        f"{broker.address}  {broker.name}",
    )
    if broker.name == "embedded" and not options.quiet:
        talk("demo broker: for this machine only, without users; apt install mosquitto for a fleet")


def _listing(report: CheckReport) -> str:
    """Return a report as lines: the tests and their results."""
    works = {
        "small messages": report.small,
        "messages of one chunk": report.chunk,
        "largest messages": report.largest,
        "retained messages": report.retained,
        "last will": report.last_will,
    }
    rows = [(name, "ok" if good else "FAILED") for name, good in works.items()]
    limit = "enforced" if report.packet_limit else "none: any client can fill the broker's memory"
    latency = f"{report.latency_ms:.2f} ms"
    return columns([("broker", report.url), ("latency", latency), *rows, ("packet limit", limit)])

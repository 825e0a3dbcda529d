"""``edgefed up``: broker, coordinator and dashboard on one machine, for real devices to join."""

from __future__ import annotations

import signal
import socket
import sys
import time
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from edgefed.cli.common.context import Globals, globals_of
from edgefed.cli.common.help import examples
from edgefed.terminal.console import talk

if TYPE_CHECKING:
    from edgefed.cli.programs.processes import Processes
    from edgefed.config.values.address import Address

EPILOG = examples(
    "edgefed up",
    "edgefed --insecure --broker mqtt://0.0.0.0:1883 up --allow-anonymous",
    "edgefed up --headless",
)


def up(
    context: typer.Context,
    headless: Annotated[bool, typer.Option("--headless", help="Show no dashboard.")] = False,
    allow_anonymous: Annotated[
        bool,
        typer.Option("--allow-anonymous", help="Accept clients without a login."),
    ] = False,
) -> None:
    """Start broker, coordinator and dashboard together; closing the dashboard asks, then ends them.

    It is a demo on this machine: there are no credentials and no encryption. For a real fleet, see
    edgefed init. A broker that already answers at the configured address is used. Runs resume at
    the next start.
    """
    from edgefed.cli.programs.processes import running
    from edgefed.cli.programs.run_launcher import StartOptions
    from edgefed.cli.programs.show_dashboard import show
    from edgefed.process.clock import SystemClock
    from edgefed.tui.keys.keymap import checked_keymap
    from edgefed.tui.state.closing import ENDS_FLEET

    options = globals_of(context)
    keys, settings = checked_keymap(options.settings()), options.settings().value
    processes = _processes(options)
    signal.signal(signal.SIGTERM, _end)
    with running(processes):
        _start(processes, allow_anonymous)
        if not headless and sys.stdout.isatty() and sys.stderr.isatty():
            near = processes.near_address()
            show(
                near,
                processes.fleet,
                SystemClock(),
                read_only=False,
                state=settings.state,
                closing=ENDS_FLEET,
                bell=settings.alerts.bell,
                keys=keys,
                start=StartOptions.of(options),
            )
            return
        while True:
            processes.check()
            time.sleep(0.5)


def _processes(options: Globals) -> Processes:
    """Return the fleet that the settings describe, not started.

    Raises:
        UsageError: the fleet has an authority.
        NotAllowedError: other machines would reach it.
    """
    from edgefed.cli.programs.processes import Processes
    from edgefed.cli.programs.secured_broker import refuse_secured, refuse_without_tls
    from edgefed.config.fleet.broker_address import listen_address

    settings = options.settings().value
    address = listen_address(settings)
    refuse_secured(settings)
    refuse_without_tls(address, settings)
    return Processes(
        address,
        settings.fleet,
        settings.state,
        trackers=settings.trackers,
        user_models=settings.user_models,
        alerts=settings.alerts,
    )


def _start(processes: Processes, allow_anonymous: bool) -> None:
    """Start the broker, unless one answers, and the coordinator; say how devices join."""
    from edgefed.cli.programs.processes import wait_for_coordinator

    address, fleet = processes.address, processes.fleet
    if processes.broker_answers():
        talk(f"broker       already at {address}")
    else:
        broker = processes.start_broker("auto", allow_anonymous or None)
        talk(f"broker       {broker.name} on {address}")
    processes.start_coordinator()
    wait_for_coordinator(processes)
    talk(f"coordinator  fleet {fleet}")
    talk(
        f"on a device  edgefed-agent run --broker {_seen_from_devices(address)} "
        f"--fleet {fleet} --data npz:FILE"
    )
    if address.is_loopback:
        talk("             on this machine only; for others: edgefed init")
    talk("! a demo without credentials or encryption: every client of the broker can give orders")


def _end(number: int, frame: FrameType | None) -> None:
    """End cleanly on SIGTERM, as a service does."""
    del number, frame
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(0)


def _seen_from_devices(address: Address) -> Address:
    """Return the broker's address with this machine's name where it listens everywhere."""
    if address.host in ("0.0.0.0", "::"):
        return replace(address, host=socket.gethostname())
    return address

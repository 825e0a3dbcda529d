"""``edgefed agent-update``: offer devices a release of their agent, and follow its installation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from edgefed.cli.common import completion
from edgefed.cli.common.context import globals_of
from edgefed.cli.common.help import examples
from edgefed.cli.common.options import DEFAULT_STAGES, Stages, StopAt, percents
from edgefed.terminal.command_line import CommandLine
from edgefed.terminal.console import columns
from edgefed.terminal.units import counted, size

app = CommandLine(help="Offer devices a release of their agent, and follow its installation.")


@app.command(epilog=examples("edgefed agent-update add /srv/releases"), json=True)
def add(
    context: typer.Context,
    folder: Annotated[
        Path,
        typer.Argument(
            help="The release manager's repository, on the coordinator's machine.",
            show_default=False,
        ),
    ],
) -> None:
    """Store a signed repository of releases in place of the one before.

    The coordinator can make no release: each device verifies its offers.
    """
    options = globals_of(context)
    with options.connected() as coordinator:
        releases = coordinator.order("update.add", folder=str(folder.absolute()))
    newest = f"; the newest is {releases[0]['release']}" if releases else ""
    options.done(releases, f"stored: {counted(len(releases), 'release')}{newest}")


@app.command("list", epilog=examples("edgefed agent-update list"), json=True)
def list_(context: typer.Context) -> None:
    """List the releases at the coordinator, the newest first."""
    options = globals_of(context)
    with options.connected() as coordinator:
        releases = coordinator.ask("update.list")
    head = ("RELEASE", "NUMBER", "WHEELS", "SIZE")
    rows = [
        (one["release"], str(one["number"]), str(len(one["wheels"])), size(one["bytes"]))
        for one in releases
    ]
    options.answer(
        releases, columns([head, *rows]), empty="No release yet: edgefed agent-update add FOLDER"
    )


@app.command(
    epilog=examples("edgefed agent-update offer 0.2.0 --devices jetson-07,jetson-08"), json=True
)
def offer(
    context: typer.Context,
    release: Annotated[str, typer.Argument(help="Its name.", show_default=False)],
    *,
    devices: Annotated[
        str,
        typer.Option(
            "--devices",
            metavar="DEVICE,…",
            help="Device ids.",
            autocompletion=completion.devices,
        ),
    ],
    during_run: Annotated[
        bool, typer.Option("--during-run", help="Change versions within a run too.")
    ] = False,
) -> None:
    """Offer a release to devices, and again to those that are not there when they come.

    The owner of each device decides whether it is installed, and when. A device that failed a
    release tries it again only after another offer.
    """
    options = globals_of(context)
    named = _names(devices)
    with options.connected() as coordinator:
        answer = coordinator.order(
            "update.offer", name=release, devices=named, during_run=during_run
        )
    options.done(answer, f"offered: {release}, to {', '.join(answer['devices'])}")


@app.command(
    epilog=examples(
        "edgefed agent-update rollout 0.2.0 --first jetson-07,jetson-08",
        "edgefed agent-update rollout 0.2.0 --stages 1,10,100 --stop-at 5",
    ),
    json=True,
)
def rollout(
    context: typer.Context,
    release: Annotated[str, typer.Argument(help="Its name.", show_default=False)],
    *,
    devices: Annotated[
        str,
        typer.Option(
            "--devices",
            metavar="DEVICE,…",
            help="Device ids; by default all that are not at a site.",
            autocompletion=completion.devices,
        ),
    ] = "",
    first: Annotated[
        str,
        typer.Option(
            "--first",
            metavar="DEVICE,…",
            help="Devices that are the first stage.",
            autocompletion=completion.devices,
        ),
    ] = "",
    stages: Stages = DEFAULT_STAGES,
    stop_at: StopAt = 10.0,
    during_run: Annotated[
        bool, typer.Option("--during-run", help="Change versions within a run too.")
    ] = False,
) -> None:
    """Offer a release in stages, and stop where too many devices go back from it.

    The next stage begins when the devices of the stage before run the release. A rollout that
    stops is withdrawn from the devices that have not tried it. A new one replaces it.
    """
    options = globals_of(context)
    shares = [percent / 100 for percent in percents(stages)]
    with options.connected() as coordinator:
        begun = coordinator.order(
            "update.rollout",
            name=release,
            devices=_names(devices),
            first=_names(first),
            shares=shares,
            stop_at=stop_at / 100,
            during_run=during_run,
        )
    asked = f"{begun['asked']} of {counted(begun['devices'], 'device')}"
    options.done(begun, f"offered: {release}, to {asked}")


@app.command(epilog=examples("edgefed agent-update progress"), json=True)
def progress(context: typer.Context) -> None:
    """Show the stage of the newest rollout, and how many devices run the release."""
    options = globals_of(context)
    with options.connected() as coordinator:
        status = coordinator.ask("update.progress")
    shares = ", ".join(f"{100 * share:.4g} %" for share in status["shares"])
    rows = [
        ("release", status["release"]),
        ("status", status["status"]),
        ("stage", f"{status['stage']} of {len(status['shares'])} ({shares})"),
        ("asked", f"{status['asked']} of {counted(status['devices'], 'device')}"),
        ("run it", str(status["taken"])),
        ("went back", f"{status['refused']} (stops above {100 * status['stop_at']:.4g} %)"),
        ("declined", str(status["skipped"])),
        ("undecided", str(status["undecided"])),
    ]
    options.answer(status, columns(rows))


@app.command(
    epilog=examples("edgefed agent-update status", "edgefed agent-update status --json"), json=True
)
def status(context: typer.Context) -> None:
    """Show the release that each device runs, the one it was offered, and the outcome."""
    options = globals_of(context)
    with options.connected() as coordinator:
        rows: list[dict[str, Any]] = coordinator.ask("update.status")
    head = ("DEVICE", "RUNS", "OFFERED", "PHASE", "REASON")
    keys = ("device", "release", "offered", "phase", "reason")
    table = columns([head, *(tuple(str(row[key]) for key in keys) for row in rows)])
    options.answer(rows, table, empty="No device has reported an update, and none was offered.")


def _names(text: str) -> list[str]:
    """Return the names of a list such as ``jetson-07,jetson-08``."""
    return [name.strip() for name in text.split(",") if name.strip()]

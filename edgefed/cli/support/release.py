"""``edgefed release``: make releases of the agent, on the release manager's machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefed.cli.common.context import globals_of
from edgefed.cli.common.help import examples
from edgefed.terminal.command_line import CommandLine
from edgefed.terminal.console import columns
from edgefed.terminal.units import counted, size

if TYPE_CHECKING:
    from edgefed.trust.releases import Release, ReleaseRepository

app = CommandLine(help="Make signed releases of the agent, away from the coordinator.")

Folder = Annotated[Path, typer.Argument(help="Folder of the repository.", show_default=False)]
Keys = Annotated[
    Path,
    typer.Option("--keys", help="Folder with the private keys of root and targets."),
]
Days = Annotated[
    float, typer.Option("--days", help="Days for which devices accept the metadata.", min=0.01)
]


@app.command(epilog=examples("edgefed release init releases --keys /media/stick/keys"), json=True)
def init(context: typer.Context, folder: Folder, *, keys: Keys, days: Days = 30.0) -> None:
    """Make an empty repository, and its keys; print the file that devices pin.

    The keys of root and targets stay with the release manager. Those of snapshot and timestamp are
    in FOLDER/online: sign needs them, and they make no release.
    """
    from edgefed.process.clock import SystemClock

    _wanted()
    from edgefed.trust.releases import create

    root = create(folder, keys.expanduser(), SystemClock().now(), days)
    options = globals_of(context)
    options.answer({"root": str(root)}, str(root))
    options.note("give this file to each device, and set update_root to its path")


@app.command(
    epilog=examples("edgefed release add releases 0.2.0 wheels --keys /media/stick/keys"), json=True
)
def add(
    context: typer.Context,
    folder: Folder,
    release: Annotated[str, typer.Argument(help="Its name.", show_default=False)],
    wheels: Annotated[Path, typer.Argument(help="Folder with its wheels.", show_default=False)],
    *,
    keys: Keys,
    days: Days = 30.0,
) -> None:
    """Add a release with the wheels in a folder, and sign it.

    Wheels of torch and NVIDIA are left out: a board keeps its own. To go back to an older version,
    add its wheels under a new name.
    """
    options, repository = globals_of(context), _opened(folder)
    made, left_out = repository.add(release, wheels, keys.expanduser())
    repository.sign(days)
    for name in left_out:
        options.note(f"left out: {name}")
    if made.is_misnamed:
        options.note(
            f"! release {made.release} installs edgefed {made.version}: if that is not meant, do"
            " not offer it, and add the right wheels under another name"
        )
    options.answer(
        {**_plain(made), "left_out": left_out},
        f"release {made.release}, number {made.number}: {counted(len(made.wheels), 'wheel')},"
        f" edgefed {made.version}",
    )


@app.command(epilog=examples("edgefed release sign releases --days 7"), json=True)
def sign(context: typer.Context, folder: Folder, *, days: Days = 30.0) -> None:
    """Confirm with the online keys that the newest metadata is still the newest.

    Needed before the last confirmation expires: devices refuse expired metadata.
    """
    repository = _opened(folder)
    repository.sign(days)
    until = repository.expiries()["timestamp"]
    globals_of(context).done({"expires": until}, f"signed until {until}")


@app.command(
    epilog=examples(
        "edgefed release renew releases --keys /media/stick/keys",
        "edgefed release renew releases --keys /media/stick/keys --replace timestamp",
    ),
    json=True,
)
def renew(
    context: typer.Context,
    folder: Folder,
    *,
    keys: Keys,
    replace: Annotated[
        list[str] | None,
        typer.Option(
            "--replace",
            help="Roles that get a new key: root, targets, snapshot, timestamp.",
            metavar="ROLE,...",
        ),
    ] = None,
    days: Days = 30.0,
) -> None:
    """Sign the metadata of root and targets for another year, and replace keys.

    Needed once a year, and at once when a key was lost or stolen. Devices keep the root that they
    have pinned. The key of root is always needed.
    """
    repository = _opened(folder)
    roles = (role.strip() for text in replace or () for role in text.split(","))
    replaced = list(dict.fromkeys(filter(None, roles)))
    repository.renew(keys.expanduser(), days, replaced)
    until = repository.expiries()
    options = globals_of(context)
    new = f"; new keys: {', '.join(replaced)}" if replaced else ""
    text = f"root and targets are valid until {until['root']}{new}"
    options.done({"expires": until, "replaced": replaced}, text)
    options.note("store the repository at the coordinator again: edgefed agent-update add FOLDER")


@app.command(epilog=examples("edgefed release show releases"), json=True)
def show(context: typer.Context, folder: Folder) -> None:
    """Show the releases of a repository, and until when its metadata is valid."""
    repository = _opened(folder)
    releases, expiries = repository.releases(), repository.expiries()
    rows = [{**_plain(one), "bytes": one.size} for one in releases]
    table = [("RELEASE", "NUMBER", "EDGEFED", "WHEELS", "SIZE")] + [
        (one.release, str(one.number), one.version, str(len(one.wheels)), size(one.size))
        for one in releases
    ]
    until = columns([(role, f"valid until {time}") for role, time in expiries.items()])
    answer = {"releases": rows, "expires": expiries}
    globals_of(context).answer(answer, f"{columns(table)}\n{until}")


def _plain(made: Release) -> dict[str, Any]:
    fields = {"release": made.release, "number": made.number, "wheels": made.wheels}
    return {**fields, "version": made.version}


def _opened(folder: Path) -> ReleaseRepository:
    from edgefed.process.clock import SystemClock

    _wanted()
    from edgefed.trust.releases import ReleaseRepository

    return ReleaseRepository(folder, SystemClock().now())


def _wanted() -> None:
    """Check that the packages of the extra are installed.

    Raises:
        UsageError: ``updates.missing``.
    """
    from edgefed.files.optional import wanted

    wanted("tuf.api.metadata", "updates", code="updates.missing", package="tuf")
    wanted("packaging.utils", "updates", code="updates.missing", package="packaging")

"""``edgefed cache``: show and remove cached data sets and natural noise."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefed.cli.common.context import globals_of
from edgefed.cli.common.help import examples
from edgefed.process.clock import Clock, SystemClock, timestamp
from edgefed.terminal.command_line import CommandLine
from edgefed.terminal.console import columns
from edgefed.terminal.units import ago, counted, size

if TYPE_CHECKING:
    from edgefed.cli.support.cache_entries import CacheEntry

app = CommandLine(help="Show and remove cached data sets and natural noise of this machine.")

_DAY = 24 * 3600


@app.callback()
def cache_() -> None:
    """Show and remove cached data sets and natural noise of this machine."""


@app.command("list", epilog=examples("edgefed cache list", "edgefed cache list --json"), json=True)
def list_(context: typer.Context) -> None:
    """List the cached data sets and natural noise in the state folder: size, last use, path."""
    from edgefed.cli.support.cache_entries import cache_entries

    options = globals_of(context)
    entries = cache_entries(options.settings().value.state)
    if not entries:
        options.done([], "the caches are empty")
        return
    options.answer([_json(entry) for entry in entries], columns(_rows(entries, SystemClock())))
    options.note(f"  {_total(entries)}")


app.command("ls", hidden=True, json=True)(list_)


@app.command(
    epilog=examples(
        "edgefed cache prune --dry-run",
        "edgefed cache prune",
        "edgefed cache prune --unused-for 7",
    ),
    json=True,
)
def prune(
    context: typer.Context,
    *,
    unused_for: Annotated[
        float, typer.Option("--unused-for", help="Keep what was used in so many days.", min=0)
    ] = 0.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Remove nothing; list what would be removed.")
    ] = False,
) -> None:
    """Remove cached data sets and natural noise from the state folder.

    Later runs read or draw them again, with the same results. Runs, models and downloaded files
    stay. An entry that a process is building now stays too.
    """
    from edgefed.cli.support.cache_entries import cache_entries, remove_entry

    options = globals_of(context)
    clock = SystemClock()
    oldest = clock.now().timestamp() - unused_for * _DAY
    unused = [
        entry
        for entry in cache_entries(options.settings().value.state)
        if not unused_for or entry.used < oldest
    ]
    removed = [entry for entry in unused if dry_run or remove_entry(entry)]
    answer = {
        "dry_run": dry_run,
        "bytes": sum(entry.bytes for entry in removed),
        "entries": [_json(entry) for entry in removed],
    }
    if dry_run and removed:
        options.answer(answer, columns(_rows(removed, clock)))
        options.note(f"  would remove {_total(removed)}")
    else:
        options.done(answer, f"removed {_total(removed)}" if removed else "nothing to remove")


def _json(entry: CacheEntry) -> dict[str, Any]:
    return {
        "kind": entry.kind,
        "path": str(entry.path),
        "bytes": entry.bytes,
        "used": timestamp(datetime.fromtimestamp(entry.used, timezone.utc)),
    }


def _rows(entries: Sequence[CacheEntry], clock: Clock) -> list[tuple[str, ...]]:
    now = clock.now().timestamp()
    return [
        (entry.kind, size(entry.bytes), ago(now - entry.used), str(entry.path)) for entry in entries
    ]


def _total(entries: Sequence[CacheEntry]) -> str:
    count = counted(len(entries), "entry", "entries")
    return f"{count}, {size(sum(entry.bytes for entry in entries))}"

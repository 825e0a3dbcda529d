"""``edgefed events``: the coordinator's event log, which survives restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from edgefed.cli.common import completion
from edgefed.cli.common.context import globals_of
from edgefed.cli.common.help import examples
from edgefed.terminal.console import Coloured, columns

if TYPE_CHECKING:
    from edgefed.control.coordinator_client import CoordinatorClient
    from edgefed.events.base.event_entries import EventEntry, EventFilter

EPILOG = examples(
    "edgefed events --problems",
    "edgefed events --device jetson-03 --kind lost",
    "edgefed events --by operator.anna --lines 500 --json",
)


def events(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORD...", help="Parts of the text; case does not matter.", show_default=False
        ),
    ] = None,
    *,
    device: Annotated[
        str,
        typer.Option("--device", help="Part of a device's id.", autocompletion=completion.devices),
    ] = "",
    kind: Annotated[
        str, typer.Option("--kind", help="Kind or outcome of the events, such as lost or order.")
    ] = "",
    by: Annotated[
        str, typer.Option("--by", help="Part of the name of the user that gave an order.")
    ] = "",
    problems: Annotated[
        bool, typer.Option("--problems", help="Only warnings, errors, losses and refusals.")
    ] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", help="How many, the newest.", min=1, max=10_000)
    ] = 50,
) -> None:
    """Print the newest events of the fleet, the newest last.

    The log survives restarts of the coordinator, and tells how long the coordinator and the broker
    were away. Replies that were accepted are left out, unless --kind reply or accepted is given.
    """
    from edgefed.events.base.event_entries import EventFilter

    options = globals_of(context)
    wanted = EventFilter(
        device=device,
        kind=kind,
        by=by,
        words=tuple(words or ()),
        problems=True if problems else None,
    )
    with options.connected() as coordinator:
        entries = _newest(coordinator, wanted, lines)
    rows = [entry.model_dump(mode="json") for entry in entries]
    options.answer(rows, columns([_row(entry) for entry in entries]), empty="No such event.")


def _newest(coordinator: CoordinatorClient, wanted: EventFilter, count: int) -> list[EventEntry]:
    """Return the newest events, oldest first."""
    from edgefed.control.event_pages import event_page
    from edgefed.events.base.event_entries import PAGE

    entries: list[EventEntry] = []
    before: int | None = None
    while len(entries) < count:
        page = event_page(coordinator, wanted, before=before, limit=min(PAGE, count - len(entries)))
        entries += page.entries
        before = page.next
        if before is None:
            break
    return entries[::-1]


def _row(entry: EventEntry) -> tuple[str, ...]:
    from edgefed.process.clock import moment_of

    def local(stamp: str) -> str:
        return moment_of(stamp).astimezone().strftime("%Y-%m-%d %H:%M:%S")

    word = Coloured(entry.word, "red") if entry.problem else entry.word
    outage = f" (from {local(entry.since)} to {local(entry.time)})" if entry.since else ""
    return local(entry.time), word, f"{entry.text}{outage}"

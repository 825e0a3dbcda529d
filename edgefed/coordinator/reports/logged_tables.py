"""Read the tables of a run, and other facts, from the event log in its folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from edgefed.events.base.log import Log
from edgefed.events.base.method_tables import MethodTables, TableView
from edgefed.events.methods.old_tables import KINDS, changes_of

EVENTS = "events.jsonl"

MAX_LOG_BYTES = 16 * 1024 * 1024
"""Bytes of an event log that are read."""

Taker = Callable[[Mapping[str, Any]], object]
"""Is called with an event as its line has it."""


def logged_tables(
    folder: Path, takers: Mapping[str, Taker] = MappingProxyType({})
) -> tuple[TableView, ...]:
    """Return the tables as the last event left them; none without a log.

    Args:
        folder: the run's.
        takers: called with each event of a kind. One that raises KeyError, TypeError or ValueError
            does not understand the event, which is passed over.
    """
    tables, log = MethodTables(), Log(folder / EVENTS, MAX_LOG_BYTES)

    def take_table(event: Mapping[str, Any]) -> None:
        for change in changes_of(event["kind"], event, tables):
            tables.apply(change)

    of_kind: Mapping[str, Taker] = {**dict.fromkeys(KINDS, take_table), **takers}
    for event in log.events() if log.path.is_file() else ():
        take = of_kind.get(str(event.get("kind")))
        if take is not None:
            with suppress(KeyError, TypeError, ValueError):
                take(event)
    return tables.views()

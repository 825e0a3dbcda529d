"""Replay some kinds of events from the log of a run, for the snapshot after a restart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from edgefed.events.log import Log

EVENTS = "events.jsonl"

MAX_LOG_BYTES = 16 * 1024 * 1024
"""Bytes of an event log that are read at a start."""


Taker = Callable[[Mapping[str, Any]], object]
"""Is called with an event as its line has it."""


def replay_events(folder: Path, takers: Mapping[str, Taker]) -> None:
    """Pass the events in a run's folder on, by kind; nothing without a log.

    Args:
        folder: the run's.
        takers: called with each event of a kind; one that raises KeyError, TypeError or ValueError
            does not understand the event, which is passed over.
    """
    log = Log(folder / EVENTS, MAX_LOG_BYTES)
    if not log.path.is_file():
        return
    for event in log.events():
        take = takers.get(str(event.get("kind")))
        if take is not None:
            with suppress(KeyError, TypeError, ValueError):
                take(event)

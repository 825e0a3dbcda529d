"""Split an event into several that are small enough for a message."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from edgefed.events.base.device_columns import MAX_CHARACTERS
from edgefed.wire.limits import MAX_ITEMS


def event_parts(
    rows: Iterable[tuple[str, Any]], names: Sequence[str], taken: int = 0
) -> Iterator[dict[str, list[Any]]]:
    """Yield the rows in parts that fit into an event each; nothing without rows.

    Args:
        rows: name of the list that a row belongs to, and the row as JSON has it.
        names: all lists, which every part has.
        taken: characters that an event's other fields take.
    """
    room = MAX_CHARACTERS - taken
    part: dict[str, list[Any]] = {name: [] for name in names}
    count, left = 0, room
    for name, row in rows:
        size = len(json.dumps(row)) + 2  # and a separator
        if count and (size > left or count >= MAX_ITEMS):
            yield part
            part, count, left = {name: [] for name in names}, 0, room
        part[name].append(row)
        count, left = count + 1, left - size
    if count:
        yield part

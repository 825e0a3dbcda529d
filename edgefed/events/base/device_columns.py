"""Events about many devices: their fields in columns, split into small events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from edgefed.wire.limits import MAX_ITEMS

LASTING = frozenset({"device", "samples", "labels", "hardware", "accelerator", "agent", "torch"})
"""Fields of a device that do not change while it is connected."""

MAX_DEVICES = MAX_ITEMS
"""Devices in one event: as many as a list in a message may have entries."""

MAX_CHARACTERS = 128 * 1024
"""Most characters of one event, which leave room for the envelope of a message."""

_NOT_COLUMNS = ("time", "kind", "devices", "joined")


def roster_parts(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, list[Any]]]:
    """Yield the fields of ``roster`` events with all ``rows``.

    Args:
        rows: ``device`` and the device's fields; the same names in every row.
    """
    part: list[Mapping[str, Any]] = []
    room = MAX_CHARACTERS
    for row in rows:
        size = len(json.dumps(row))
        if part and (size > room or len(part) >= MAX_DEVICES):
            yield _columns(part)
            part, room = [], MAX_CHARACTERS
        part.append(row)
        room -= size
    if part:
        yield _columns(part)


def _columns(rows: list[Mapping[str, Any]]) -> dict[str, list[Any]]:
    names = [name for name in rows[0] if name != "device"]
    columns = {name: [row[name] for row in rows] for name in names}
    return {"devices": [row["device"] for row in rows], **columns}


def roster_rows(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a ``roster`` event, as the fields of one ``device`` event each.

    Args:
        fields: those of the event, or the event as its line has it.

    Raises:
        ValueError: its columns are not of one length.
    """
    columns = {name: column for name, column in fields.items() if name not in _NOT_COLUMNS}
    return [
        {"device": device, **dict(zip(columns, row, strict=True))}
        for device, *row in zip(fields["devices"], *columns.values(), strict=True)
    ]

"""Draw the labels of each device, as text bars that fit the terminal."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any, TextIO

BLOCKS = "·▁▂▃▄▅▆▇█"
PLAIN = ".12345678"
"""Heights from nothing to the full bar, and the same for terminals without the blocks."""

LEAST = 8
"""Fewest columns for labels, however narrow the terminal."""


def drawn_on(stream: TextIO, report: dict[str, Any]) -> str:
    """Return the label histogram of each device for a stream's encoding and the terminal's width.

    Args:
        stream: takes the text.
        report: as in `draw`.
    """
    encoding = stream.encoding or "utf-8"
    plain = BLOCKS.encode(encoding, errors="replace").decode(encoding) != BLOCKS
    return draw(report, shutil.get_terminal_size((80, 24)).columns, plain)


def draw(report: dict[str, Any], width: int, plain: bool) -> str:
    """Return the label histogram of each device, a row each, and of all together.

    Where targets are not labels, the number of samples only.

    Args:
        report: as `edgefed.data.devices.report` makes it.
        width: columns of the terminal.
        plain: use digits instead of blocks.
    """
    devices, totals = report["devices"], report["totals"]
    if not totals["labels"]:
        return _counts(devices)
    if len(devices) == 1:
        return _single(devices[0], width, plain)
    names = [_short(device["device"]) for device in devices] + ["all"]
    counts = [str(device["train"]) for device in devices] + [str(totals["train"])]
    left = max(map(len, [*names, "DEVICE"]))
    middle = max(map(len, [*counts, "SAMPLES"]))
    room = max(LEAST, width - left - middle - 4)
    rows = [device["labels"] for device in devices]
    bundle = -(-report["classes"] // room)
    cell = _cell(report["classes"], bundle, room)
    columns = [bundled(row, bundle) for row in rows]
    highest = max(max(row) for row in columns)
    drawn = [bars(row, highest, cell, plain) for row in columns]
    whole = bundled(totals["labels"], bundle)
    drawn.append(bars(whole, max(whole), cell, plain))
    head = [("DEVICE", "SAMPLES", _ruler(len(whole), bundle, cell, room))]
    table = [*head, *zip(names, counts, drawn, strict=True)]
    lines = [f"{name:<{left}}  {count:>{middle}}  {bar}".rstrip() for name, count, bar in table]
    return "\n".join([*lines, "", _legend(highest, max(whole), bundle, plain)])


def _single(device: dict[str, Any], width: int, plain: bool) -> str:
    """Return one device's labels, a line each."""
    held = [(label, count) for label, count in enumerate(device["labels"]) if count]
    highest = max((count for _, count in held), default=1)
    left = max([len("LABEL"), *(len(str(label)) for label, _ in held)])
    middle = max([len("SAMPLES"), *(len(str(count)) for _, count in held)])
    room = max(LEAST, width - left - middle - 4)
    mark = "#" if plain else BLOCKS[-1]
    lines = [f"{'LABEL':>{left}}  {'SAMPLES':>{middle}}"]
    for label, count in held:
        bar = mark * max(1, round(count / highest * room))
        lines.append(f"{label:>{left}}  {count:>{middle}}  {bar}")
    return "\n".join(lines)


def _counts(devices: Sequence[dict[str, Any]]) -> str:
    """Return how many samples each device holds, a line each."""
    rows = [
        ("DEVICE", "SAMPLES"),
        *((_short(device["device"]), device["train"]) for device in devices),
    ]
    left = max(len(name) for name, _ in rows)
    middle = max(len(str(count)) for _, count in rows)
    return "\n".join(f"{name:<{left}}  {count:>{middle}}" for name, count in rows)


def _short(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:23]}~"


def bundled(counts: Sequence[int], bundle: int) -> list[int]:
    """Return the sums of groups of neighbours."""
    return [sum(counts[start : start + bundle]) for start in range(0, len(counts), bundle)]


def _cell(classes: int, bundle: int, room: int) -> int:
    """Return how many columns a label takes, so that its number fits above where there is room."""
    wanted = len(str(classes - 1)) + 1
    return wanted if bundle == 1 and classes * wanted <= room else 1


def bars(counts: Sequence[int], highest: int, cell: int, plain: bool) -> str:
    """Return a character for each count; one that is not 0 never looks like none."""
    marks = PLAIN if plain else BLOCKS
    top = len(marks) - 1
    heights = [-(-count * top // max(1, highest)) for count in counts]
    return "".join(marks[height].ljust(cell) for height in heights)


def _ruler(columns: int, bundle: int, cell: int, room: int) -> str:
    """Return the labels' numbers: each, or every tenth column's first, where there is room."""
    if cell > 1:
        return "".join(str(label).ljust(cell) for label in range(columns))
    ruler = ""
    for column in range(0, columns, 10):
        longer = ruler.ljust(column) + str(column * bundle)
        ruler = longer if len(longer) <= room else ruler
    return ruler


def _legend(highest: int, whole: int, bundle: int, plain: bool) -> str:
    marks = PLAIN if plain else BLOCKS
    legend = f"{marks[-1]} is {highest} samples of a device, {whole} of all; {marks[0]} is none"
    return legend + (f"; a column is {bundle} labels" if bundle > 1 else "")

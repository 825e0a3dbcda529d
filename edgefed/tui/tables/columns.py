"""The columns of the device table: contents, width, and sort key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from rich.text import Text

from edgefed.events.base.snapshot import DeviceSnapshot
from edgefed.tui.look.symbols import STATES
from edgefed.tui.look.text_format import MEBIBYTE, cut_middle
from edgefed.tui.look.theme import MUTED, ORANGE, VERMILLION
from edgefed.tui.state.display_state import Shown
from edgefed.tui.state.trouble import why
from edgefed.tui.tables import device_cells as cells
from edgefed.tui.tables.device_cells import BAR, LABEL_BINS, Cell

PADDING = 2
"""Cells that the table adds to every column."""

_ID_WIDTHS = (6, 12, 24)
"""Widths of the column of ids: the least, the most at the cost of other columns, the largest."""

_REASON_WIDTHS = (16, 48)
"""Of the column of reasons: the least and the largest."""

_LIT = {"state", "seen", "reason"}
"""Columns that keep their colours in the row of a lost device."""


@dataclass(frozen=True)
class DeviceColumn:
    """One column.

    Attributes:
        key: stable name, also used in the title of the pane.
        width: cells of its content, without the table's padding.
        rank: the highest numbers leave first when the screen is narrow.
        cell: its content for a device.
        order: its sort key; None sorts last in both directions.
        right: whether it is flush right, as numbers are.
        is_known: whether a device has a value in it; a column without values is hidden. None for
            one that is always shown.
    """

    key: str
    label: str
    width: int
    rank: int
    cell: Cell
    order: Callable[[DeviceSnapshot], Any]
    right: bool = False
    is_known: Callable[[DeviceSnapshot], bool] | None = None

    def head(self) -> Text:
        """Return the heading."""
        return _aligned(Text(self.label), self.right)

    def content(self, device: DeviceSnapshot, shown: Shown) -> Text:
        """Return the cell of a device."""
        text = self.cell(device, shown)
        if self.key == "device":
            text.plain = cut_middle(text.plain, self.width)
        if device.state == "lost" and self.key not in _LIT:
            text.stylize(MUTED)
        text.truncate(self.width, overflow="ellipsis")
        return _aligned(text, self.right)


def _aligned(text: Text, right: bool) -> Text:
    text.justify = "right" if right else "left"
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _trust_order(device: DeviceSnapshot) -> float:
    return -1.0 if device.standing == "quarantined" else device.trust


def _main_expert(device: DeviceSnapshot) -> int | None:
    return device.mixture.index(max(device.mixture)) if device.mixture else None


def _field(name: str) -> Callable[[DeviceSnapshot], Any]:
    return attrgetter(name)


def has_supplements(device: DeviceSnapshot) -> bool:
    """Whether a device asks for mixes, or has mixes or noise, in the current run."""
    return bool(device.open_bounties or device.received_mixes or device.noise_samples)


def _has(name: str) -> Callable[[DeviceSnapshot], bool]:
    """Return a function that is true of a device with a value that is not zero or empty."""
    return attrgetter(name)


def _knows(name: str) -> Callable[[DeviceSnapshot], bool]:
    """Return a function that finds whether a device has a value, even if it is zero."""
    return lambda device: getattr(device, name) is not None


def _reading(
    key: str, label: str, width: int, rank: int, form: str = "{:.0f}", scale: float = 1.0
) -> DeviceColumn:
    """Return the column of a number that not every device tells."""
    cell = cells.temperature if key == "temperature" else cells.number(key, form, scale)
    return DeviceColumn(
        key, label, width, rank, cell, _field(key), right=True, is_known=_knows(key)
    )


def _counter(
    key: str, label: str, width: int, rank: int, cell: Cell, *, of: str = ""
) -> DeviceColumn:
    """Return the column of a count that most devices lack; ``of`` is its field, else ``key``."""
    field = of or key
    return DeviceColumn(
        key, label, width, rank, cell, _field(field), right=True, is_known=_has(field)
    )


COLUMNS: tuple[DeviceColumn, ...] = (
    DeviceColumn("device", "DEVICE", 12, 0, cells.device_id, _field("device")),
    DeviceColumn("state", "STATE", 10, 1, cells.state, lambda device: STATES.index(device.state)),
    DeviceColumn("reason", "REASON", _REASON_WIDTHS[0], 2, cells.reason,
           lambda device: why(device) or None, is_known=lambda device: bool(why(device))),
    DeviceColumn("training", "TRAINING", BAR + 6, 3, cells.training, _field("fraction")),
    DeviceColumn("seen", "SEEN", 6, 4, cells.seen, _field("seen_at"), right=True),
    DeviceColumn("samples", "SAMPLES", 7, 5, cells.number("samples", "{:.0f}"), _field("samples"),
           right=True),
    DeviceColumn("trust", "TRUST", 11, 6, cells.trust, _trust_order,
           is_known=lambda device: device.standing != "trusted"),
    DeviceColumn("mixture", "EXPERTS", 15, 8, cells.mixture, _main_expert,
           is_known=_has("mixture")),
    DeviceColumn("labels", "LABELS", LABEL_BINS, 9, cells.labels,
           lambda device: sum(count > 0 for count in device.labels), is_known=_has("labels")),
    _reading("temperature", "°C", 3, 10),
    _counter("rejected", "REJ", 3, 11, cells.count("rejected", VERMILLION)),
    _counter("late", "LATE", 4, 12, cells.count("late", ORANGE)),
    _reading("loss", "LOSS", 6, 13, "{:.3f}"),
    _reading("sent", "▲ MiB", 7, 14, "{:.1f}", MEBIBYTE),
    _reading("received", "▼ MiB", 7, 15, "{:.1f}", MEBIBYTE),
    DeviceColumn("memory", "MACHINE RAM", 16, 7, cells.memory, _field("memory"), right=True,
           is_known=_knows("memory")),
    _reading("power", "W", 5, 16, "{:.1f}"),
    _reading("joules", "J", 7, 27),
    _reading("gpu", "GPU", 4, 17, "{:.0f}%"),
    _reading("battery", "BAT", 4, 18, "{:.0f}%"),
    DeviceColumn("hardware", "HARDWARE", 16, 19, cells.hardware,
           lambda device: device.hardware or None, is_known=_has("hardware")),
    DeviceColumn("site", "SITE", 10, 26, cells.site, lambda device: device.site or None,
           is_known=_has("site")),
    _counter("means", "MEANS", 5, 20, cells.averages("shared_entries"), of="shared_entries"),
    _counter("group", "GROUP", 5, 21, cells.averages("shared_group"), of="shared_group"),
    _counter("shared", "SHARED", 9, 22, cells.shared, of="shared_bytes"),
    DeviceColumn("bounties", "BOUNTIES", 8, 23, cells.supplement("open_bounties"),
           _field("open_bounties"), right=True, is_known=has_supplements),
    DeviceColumn("mixes", "MIXES", 6, 24, cells.supplement("received_mixes"),
           _field("received_mixes"), right=True, is_known=has_supplements),
    DeviceColumn("noise", "NOISE", 6, 25, cells.supplement("noise_samples"),
           _field("noise_samples"), right=True, is_known=has_supplements),
)  # fmt: skip
"""All columns, in the order of the screen; ``sent`` and ``received`` are from the device's side,
and ▲ is towards the coordinator, on every screen."""


def columns_for(devices: Sequence[DeviceSnapshot], width: int | None) -> tuple[DeviceColumn, ...]:
    """Return the columns that fit ``width`` cells, the most important first; None is all of them.

    Columns without values are hidden. A long id takes no room from other columns: it gets the rest
    of the width, and the reasons get the rest after it.
    """
    longest = max((len(device.device) for device in devices), default=0)
    low, modest, high = _ID_WIDTHS
    least = max(low, min(modest, longest))
    wanted = max(low, min(high, longest))
    known = [column for column in COLUMNS if _is_shown(column, devices)]
    if width is None:
        return tuple(_widened(known, wanted, _REASON_WIDTHS[1]))
    kept: set[str] = set()
    for column in sorted(known, key=lambda column: column.rank):
        needed = PADDING + (least if column.key == "device" else column.width)
        if needed > width:
            break
        width -= needed
        kept.add(column.key)
    more = min(width, wanted - least)
    reasons = min(_REASON_WIDTHS[1], _REASON_WIDTHS[0] + width - more)
    fitting = [column for column in known if column.key in kept]
    return tuple(_widened(fitting, least + more, reasons))


def _is_shown(column: DeviceColumn, devices: Sequence[DeviceSnapshot]) -> bool:
    return column.is_known is None or any(map(column.is_known, devices))


def _widened(columns: Iterable[DeviceColumn], ids: int, reasons: int) -> Iterator[DeviceColumn]:
    """Yield the columns, those of ids and of reasons as wide as wanted."""
    widths = {"device": ids, "reason": reasons}
    for column in columns:
        yield replace(column, width=widths.get(column.key, column.width))


def in_order(
    devices: Iterable[DeviceSnapshot], column: DeviceColumn, *, reverse: bool
) -> list[DeviceSnapshot]:
    """Return the devices sorted by a column; equal ones by id, those without a value last."""
    by_id = sorted(devices, key=lambda device: device.device)
    known = [device for device in by_id if column.order(device) is not None]
    unknown = [device for device in by_id if column.order(device) is None]
    return [*sorted(known, key=column.order, reverse=reverse), *unknown]

"""The columns of the device table: contents, width, and sort key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.text import Text

from edgefed.events.snapshot import DeviceView
from edgefed.tui.display_state import Shown
from edgefed.tui.symbols import ACTIVE, DEVICE_LOOKS, HOT, STATES
from edgefed.tui.text_format import MEBIBYTE, age, bar, binned, clean, sparks
from edgefed.tui.theme import MUTED, ORANGE, RULE, SKY, VERMILLION
from edgefed.units import size

PADDING = 2
"""Cells that the table adds to every column."""

_LABEL_BINS = 10
_BAR = 8
_ID_WIDTHS = (6, 20)
_OF_AVERAGES = {"means", "group", "shared"}
_OF_BOUNTIES = {"bounties", "mixes", "noise"}
_OF_EXPERTS = {"mixture"}
_OF_TRUST = {"trust"}


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        key: stable name, also what the title of the pane calls it.
        width: cells of its content, without the table's padding.
        rank: the highest numbers leave first when the screen is narrow.
        cell: what it shows of a device.
        order: what it sorts by; None sorts last in both directions.
        right: whether it is flush right, as numbers are.
    """

    key: str
    label: str
    width: int
    rank: int
    cell: Callable[[DeviceView, Shown], Text]
    order: Callable[[DeviceView], Any]
    right: bool = False

    def head(self) -> Text:
        """Return the heading."""
        return _aligned(Text(self.label), self.right)

    def content(self, device: DeviceView, shown: Shown) -> Text:
        """Return the cell of a device."""
        return _aligned(self.cell(device, shown), self.right)


def _aligned(text: Text, right: bool) -> Text:
    text.justify = "right" if right else "left"
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _device(device: DeviceView, shown: Shown) -> Text:
    del shown
    return Text(clean(device.device))


def _state(device: DeviceView, shown: Shown) -> Text:
    del shown
    look = DEVICE_LOOKS[device.state]
    return Text(f"{look.symbol} {device.state}", look.colour)


def _training(device: DeviceView, shown: Shown) -> Text:
    del shown
    if device.state not in ACTIVE and device.fraction <= 0:
        return Text("·", MUTED)
    full, empty = bar(device.fraction, _BAR)
    percent = f"{device.fraction * 100:4.0f} %"
    return Text.assemble((full, SKY), (empty, RULE), percent)


def _seen(device: DeviceView, shown: Shown) -> Text:
    since = shown.since(device.seen_at)
    if since is None:
        return Text("—", MUTED)
    return Text(age(since.total_seconds()), VERMILLION if device.state == "lost" else "")


def _labels(device: DeviceView, shown: Shown) -> Text:
    del shown
    return Text(sparks(binned(device.labels, _LABEL_BINS)) if device.labels else "—", MUTED)


def _shared(device: DeviceView, shown: Shown) -> Text:
    del shown
    return Text(size(device.shared_bytes)) if device.shared_entries else Text("·", MUTED)


def _supplement(field: str) -> Callable[[DeviceView, Shown], Text]:
    """Return what shows a number about a device's label bounties, or that there are none."""

    def cell(device: DeviceView, shown: Shown) -> Text:
        del shown
        count = getattr(device, field)
        return Text(str(count)) if count else Text("·", MUTED)

    return cell


def _averages(field: str) -> Callable[[DeviceView, Shown], Text]:
    """Return what shows a number about shared averages, or that there are none."""

    def cell(device: DeviceView, shown: Shown) -> Text:
        del shown
        return Text(str(getattr(device, field))) if device.shared_entries else Text("·", MUTED)

    return cell


def _mixture(device: DeviceView, shown: Shown) -> Text:
    """Return the two largest shares, such as ``e0 .62 e2 .38``."""
    del shown
    if not device.mixture:
        return Text("·", MUTED)
    order = sorted(range(len(device.mixture)), key=lambda e: (-device.mixture[e], e))[:2]
    return Text(" ").join(
        Text(f"e{expert} {_share(device.mixture[expert])}", SKY if place == 0 else "")
        for place, expert in enumerate(order)
    )


def _trust(device: DeviceView, shown: Shown) -> Text:
    """Return the score of a device that is not trusted, or that it is quarantined."""
    del shown
    if device.standing == "quarantined":
        return Text("quarantined", VERMILLION)
    return Text(f"{device.trust:.2f}", ORANGE if device.standing == "suspect" else MUTED)


def _trust_order(device: DeviceView) -> float:
    return -1.0 if device.standing == "quarantined" else device.trust


def _share(share: float) -> str:
    """Return a share in three characters."""
    return "1.0" if share >= 0.995 else f"{share:.2f}"[1:]


def _main_expert(device: DeviceView) -> int | None:
    return device.mixture.index(max(device.mixture)) if device.mixture else None


def _temperature(device: DeviceView, shown: Shown) -> Text:
    cell = _number("temperature", "{:.0f}")(device, shown)
    if (device.temperature or 0.0) >= HOT:
        cell.stylize(ORANGE)
    return cell


def _number(field: str, form: str, scale: float = 1.0) -> Callable[[DeviceView, Shown], Text]:
    def cell(device: DeviceView, shown: Shown) -> Text:
        del shown
        value = getattr(device, field)
        return Text("—", MUTED) if value is None else Text(form.format(value / scale))

    return cell


def _field(name: str) -> Callable[[DeviceView], Any]:
    return lambda device: getattr(device, name)


COLUMNS: tuple[Column, ...] = (
    Column("device", "DEVICE", 12, 0, _device, _field("device")),
    Column("state", "STATE", 10, 1, _state, lambda device: STATES.index(device.state)),
    Column("training", "TRAINING", _BAR + 6, 2, _training, _field("fraction")),
    Column("seen", "SEEN", 6, 3, _seen, _field("seen_at"), right=True),
    Column("samples", "SAMPLES", 7, 4, _number("samples", "{:.0f}"), _field("samples"), right=True),
    Column("trust", "TRUST", 11, 4, _trust, _trust_order),
    Column("mixture", "EXPERTS", 15, 5, _mixture, _main_expert),
    Column("labels", "LABELS", _LABEL_BINS, 6, _labels,
           lambda device: sum(count > 0 for count in device.labels)),
    Column("sent", "▲ MiB", 7, 9, _number("sent", "{:.1f}", MEBIBYTE), _field("sent"), right=True),
    Column("received", "▼ MiB", 7, 10, _number("received", "{:.1f}", MEBIBYTE), _field("received"),
           right=True),
    Column("temperature", "°C", 3, 7, _temperature, _field("temperature"), right=True),
    Column("power", "W", 5, 11, _number("power", "{:.1f}"), _field("power"), right=True),
    Column("gpu", "GPU", 4, 12, _number("gpu", "{:.0f}%"), _field("gpu"), right=True),
    Column("battery", "BAT", 4, 13, _number("battery", "{:.0f}%"), _field("battery"), right=True),
    Column("rejected", "REJ", 3, 8, _number("rejected", "{:.0f}"), _field("rejected"), right=True),
    Column("means", "MEANS", 5, 14, _averages("shared_entries"), _field("shared_entries"),
           right=True),
    Column("group", "GROUP", 5, 15, _averages("shared_group"), _field("shared_group"), right=True),
    Column("shared", "SHARED", 8, 16, _shared, _field("shared_bytes"), right=True),
    Column("bounties", "BOUNTIES", 8, 17, _supplement("open_bounties"), _field("open_bounties"),
           right=True),
    Column("mixes", "MIXES", 6, 18, _supplement("received_mixes"), _field("received_mixes"),
           right=True),
    Column("noise", "NOISE", 6, 19, _supplement("noise_samples"), _field("noise_samples"),
           right=True),
)  # fmt: skip
"""All columns, in the order of the screen."""


def columns_for(devices: Sequence[DeviceView], width: int | None) -> tuple[Column, ...]:
    """Return the columns that fit ``width`` cells, the most important first; None is all of them.

    The column of ids is as wide as the longest id; batteries are shown when a device has one, what
    is shared of averaged data when a device shares some, open bounties, mixes and noise when a
    device has supplements for labels or asks for some, experts when a device has a mixture, and
    trust when a device is suspect or quarantined.
    """
    longest = max((len(device.device) for device in devices), default=0)
    low, high = _ID_WIDTHS
    first = replace(COLUMNS[0], width=min(high, max(low, longest)))
    hidden = set() if any(device.battery is not None for device in devices) else {"battery"}
    if not any(device.shared_entries for device in devices):
        hidden |= _OF_AVERAGES
    if not any(map(has_supplements, devices)):
        hidden |= _OF_BOUNTIES
    if not any(device.mixture for device in devices):
        hidden |= _OF_EXPERTS
    if all(device.standing == "trusted" for device in devices):
        hidden |= _OF_TRUST
    known = [first, *(column for column in COLUMNS[1:] if column.key not in hidden)]
    if width is None:
        return tuple(known)
    kept: set[str] = set()
    for column in sorted(known, key=lambda column: column.rank):
        width -= column.width + PADDING
        if width < 0:
            break
        kept.add(column.key)
    return tuple(column for column in known if column.key in kept)


def has_supplements(device: DeviceView) -> bool:
    """Whether a device asks for mixes, or has mixes or noise, in the current run."""
    return bool(device.open_bounties or device.received_mixes or device.noise_samples)


def in_order(devices: Iterable[DeviceView], column: Column, *, reverse: bool) -> list[DeviceView]:
    """Return the devices sorted by a column; equal ones by id, those without a value last."""
    by_id = sorted(devices, key=lambda device: device.device)
    known = [device for device in by_id if column.order(device) is not None]
    unknown = [device for device in by_id if column.order(device) is None]
    return [*sorted(known, key=column.order, reverse=reverse), *unknown]

"""The cells of the device table: the content of each column for a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from rich.text import Text

from edgefed.events.base.snapshot import DeviceSnapshot
from edgefed.events.state.awaited_devices import silent_for
from edgefed.terminal.units import age, size, used_of
from edgefed.tui.look.symbols import ACTIVE, DEVICE_LOOKS, HOT
from edgefed.tui.look.text_format import bar, binned, clean, sparks
from edgefed.tui.look.theme import MUTED, ORANGE, RULE, SKY, VERMILLION
from edgefed.tui.state.display_state import Shown
from edgefed.tui.state.trouble import why

Cell = Callable[[DeviceSnapshot, Shown], Text]

LABEL_BINS = 10
"""Characters of the histogram of labels."""

BAR = 8
"""Characters of the bar of training."""


@dataclass(frozen=True)
class Condition:
    """State, silence and reason of a device, as all screens show them.

    Attributes:
        symbol, colour, meaning: of the state.
        state: the state, with its progress while the device works.
        silence: age of its last message; of the state, if nothing is awaited of the device.
        silence_colour: of the silence.
        reason: the problem of the device; empty if there is none.
    """

    symbol: str
    colour: str
    meaning: str
    state: str
    silence: str
    silence_colour: str
    reason: str


def condition(device: DeviceSnapshot, shown: Shown) -> Condition:
    """Return state, silence and reason of a device.

    For a state in which nothing is awaited of the device, it is the age of the state.
    """
    awaited = device.state in (*ACTIVE, "invited", "asked", "silent")
    look = DEVICE_LOOKS[device.state]
    since = shown.since(device.seen_at if awaited else device.state_since or device.seen_at)
    works = device.state in ACTIVE and 0 < device.fraction < 1
    lost = VERMILLION if device.state == "lost" else MUTED
    return Condition(
        look.symbol,
        look.colour,
        look.meaning,
        f"{device.state} {device.fraction * 100:.0f} %" if works else device.state,
        "—" if since is None else age(since.total_seconds()),
        MUTED if since is None else lost,
        clean(why(device)),
    )


def device_id(device: DeviceSnapshot, shown: Shown) -> Text:
    """Return the id."""
    del shown
    return Text(clean(device.device))


def state(device: DeviceSnapshot, shown: Shown) -> Text:
    """Return symbol and word of the state."""
    del shown
    look = DEVICE_LOOKS[device.state]
    return Text(f"{look.symbol} {device.state}", look.colour)


def training(device: DeviceSnapshot, shown: Shown) -> Text:
    """Return the progress of the work, if there is any."""
    del shown
    if device.state not in ACTIVE and device.fraction <= 0:
        return Text("·", MUTED)
    full, empty = bar(device.fraction, BAR)
    percent = f"{device.fraction * 100:4.0f} %"
    return Text.assemble((full, SKY), (empty, RULE), percent)


def seen(device: DeviceSnapshot, shown: Shown) -> Text:
    """Return the age of its last message."""
    since = shown.since(device.seen_at)
    if since is None:
        return Text("—", MUTED)
    return Text(
        age(since.total_seconds()), VERMILLION if device.state in ("lost", "silent") else ""
    )


def labels(device: DeviceSnapshot, shown: Shown) -> Text:
    """Return the histogram of its labels."""
    del shown
    return Text(_histogram(device.labels) if device.labels else "—", MUTED)


@lru_cache(4096)
def _histogram(counts: tuple[int, ...]) -> str:
    return sparks(binned(counts, LABEL_BINS))


def shared(device: DeviceSnapshot, shown: Shown) -> Text:
    """Return the bytes that brought its averages."""
    del shown
    return Text(size(device.shared_bytes)) if device.shared_entries else Text("·", MUTED)


def supplement(field: str) -> Cell:
    """Return a cell with a number about a device's label bounties, or a dot without any."""

    def cell(device: DeviceSnapshot, shown: Shown) -> Text:
        del shown
        count = getattr(device, field)
        return Text(str(count)) if count else Text("·", MUTED)

    return cell


def averages(field: str) -> Cell:
    """Return a cell with a number about shared averages, or a dot without any."""

    def cell(device: DeviceSnapshot, shown: Shown) -> Text:
        del shown
        return Text(str(getattr(device, field))) if device.shared_entries else Text("·", MUTED)

    return cell


def mixture(device: DeviceSnapshot, shown: Shown) -> Text:
    """Return the two largest shares, such as ``e0 .62 e2 .38``."""
    del shown
    if not device.mixture:
        return Text("·", MUTED)
    order = sorted(range(len(device.mixture)), key=lambda e: (-device.mixture[e], e))[:2]
    return Text(" ").join(
        Text(f"e{expert} {_share(device.mixture[expert])}", SKY if place == 0 else "")
        for place, expert in enumerate(order)
    )


def trust(device: DeviceSnapshot, shown: Shown) -> Text:
    """Return the score of a device that is not trusted, or that it is quarantined."""
    del shown
    if device.standing == "quarantined":
        return Text("quarantined", VERMILLION)
    return Text(f"{device.trust:.2f}", ORANGE if device.standing == "suspect" else MUTED)


def _share(share: float) -> str:
    """Return a share in three characters."""
    return "1.0" if share >= 0.995 else f"{share:.2f}"[1:]


def temperature(device: DeviceSnapshot, shown: Shown) -> Text:
    """Return the temperature, marked where it is high."""
    cell = number("temperature", "{:.0f}")(device, shown)
    if (device.temperature or 0.0) >= HOT:
        cell.stylize(ORANGE)
    return cell


def number(field: str, form: str, scale: float = 1.0) -> Cell:
    """Return a cell with a scaled number."""

    def cell(device: DeviceSnapshot, shown: Shown) -> Text:
        del shown
        value = getattr(device, field)
        return Text("—", MUTED) if value is None else Text(form.format(value / scale))

    return cell


def reason(device: DeviceSnapshot, shown: Shown) -> Text:
    """Return the problem of a device."""
    text = silent_for(device, shown.now) if device.state == "silent" else why(device)
    return Text(clean(text)) if text else Text("·", MUTED)


def site(device: DeviceSnapshot, shown: Shown) -> Text:
    """Return the gateway that speaks for a device."""
    del shown
    return Text(clean(device.site)) if device.site else Text("—", MUTED)


def hardware(device: DeviceSnapshot, shown: Shown) -> Text:
    """Return the board."""
    del shown
    return Text(clean(device.hardware)) if device.hardware else Text("—", MUTED)


def memory(device: DeviceSnapshot, shown: Shown) -> Text:
    """Return the memory in use and all, if the device reports it, in binary units."""
    del shown
    if device.memory is None:
        return Text("—", MUTED)
    return Text(used_of(device.memory, device.memory_total))


def count(field: str, colour: str) -> Cell:
    """Return a cell with a number of failures, or a dot without any."""

    def cell(device: DeviceSnapshot, shown: Shown) -> Text:
        del shown
        times = getattr(device, field)
        return Text(str(times), colour) if times else Text("·", MUTED)

    return cell

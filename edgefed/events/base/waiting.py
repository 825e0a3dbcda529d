"""The devices that an exchange waits for: updates by answers, and their form in events."""

from __future__ import annotations

from edgefed.events.base.snapshot import WaitingView
from edgefed.terminal.units import counted

MOST_NAMED = 3
"""Devices that a line names; of the others it tells how many there are."""


def without(waiting: WaitingView | None, device: str) -> WaitingView | None:
    """Return the waited-for devices without ``device``, which has answered; None for none."""
    if waiting is None:
        return None
    lost = tuple(name for name in waiting.lost if name != device)
    online = tuple(name for name in waiting.online if name != device)
    named = len(lost) + len(online) < len(waiting.lost) + len(waiting.online)
    more = waiting.more if named else max(0, waiting.more - 1)
    if not lost and not online and not more:
        return None
    return waiting.model_copy(update={"lost": lost, "online": online, "more": more})


def waiting_until(waiting: WaitingView) -> str:
    """Return the devices and the time of day in UTC until which they are waited for."""
    return f"{waiting_in_words(waiting)}, until {waiting.until[11:19]} UTC"


def waiting_in_words(waiting: WaitingView, most: int = MOST_NAMED) -> str:
    """Return the devices, the lost ones first, such as ``dev-3 (lost), dev-7 and 2 more``."""
    names = [*(f"{device} (lost)" for device in waiting.lost), *waiting.online]
    more = waiting.more + len(names[most:])
    named = ", ".join(names[:most])
    if not more:
        return named
    if named:
        return f"{named} and {more} more"
    return counted(more, "device")

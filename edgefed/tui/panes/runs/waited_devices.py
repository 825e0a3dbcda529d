"""The line that names the devices that a round waits for, with their progress."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from edgefed.events.base.device_rounds import waits_for
from edgefed.events.base.snapshot import DeviceSnapshot, RunView
from edgefed.terminal.units import duration
from edgefed.tui.look.symbols import ACTIVE
from edgefed.tui.look.text_format import clean, cut_middle
from edgefed.tui.look.theme import MUTED, VERMILLION
from edgefed.tui.state.display_state import Shown

_LONGEST_NAME = 18
_BETWEEN = " · "


def waits_line(shown: Shown, run: RunView, width: int) -> Text:
    """Return the number of devices that the open exchange waits for, and as many names as fit.

    Lost ones are first, then those with the least progress. Without any it is the slowest answer so
    far.
    """
    parts = list(_waited(shown, run))
    named = run.waiting
    total = len(named.lost) + len(named.online) + named.more if named else 0
    count = max(total, len(parts))
    if not count:
        return slowest_line(run)
    line = Text.assemble(("waits for ", MUTED), f"{count}", (": " if parts else "", MUTED))
    for index, part in enumerate(parts):
        rest = f" and {count - index} more"
        last = index == count - 1
        between = _BETWEEN if index else ""
        room = width - line.cell_len - len(between) - part.cell_len
        if room < (0 if last else len(f" and {count - index - 1} more")):
            return line.append(rest, MUTED)
        line.append(between, MUTED).append_text(part)
    return line.append(f" and {count - len(parts)} more", MUTED) if count > len(parts) else line


def _waited(shown: Shown, run: RunView) -> Iterator[Text]:
    devices = {view.device: view for view in shown.snapshot.devices} if shown.snapshot else {}
    named = run.waiting
    names = {view.device for view in devices.values() if waits_for(view, run)}
    lost = {name for name in names if devices[name].state == "lost"}
    if named is not None:
        lost |= set(named.lost)
        names |= {*named.lost, *named.online}
    for name in sorted(lost):
        yield Text(f"{_name(name)} lost", VERMILLION)
    there = [devices.get(name) or DeviceSnapshot(device=name) for name in names - lost]
    for view in sorted(there, key=lambda view: (_share(view), view.device)):
        yield Text(f"{_name(view.device)} {_doing(view)}".rstrip())


def _name(device: str) -> str:
    return cut_middle(clean(device), _LONGEST_NAME)


def _share(view: DeviceSnapshot) -> float:
    return view.fraction if view.state in ACTIVE else 0.0


def _doing(view: DeviceSnapshot) -> str:
    """Return how far a device is with its training, or the state that it is in."""
    if view.state in ("train", "evaluate"):
        return f"{view.fraction * 100:.0f} %"
    return "" if view.state in ("idle", "lost") else view.state


def slowest_line(run: RunView) -> Text:
    """Return the slowest answer so far, and the number refused; nothing without an answer."""
    if not run.slowest:
        return Text()
    name = _name(run.slowest)
    line = Text.assemble(("slowest so far ", MUTED), f"{name}, {duration(run.slowest_seconds)}")
    return line.append(f"{_BETWEEN}refused {run.refused}", MUTED) if run.refused else line

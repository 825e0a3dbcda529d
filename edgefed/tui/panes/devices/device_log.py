"""The pane with the end of the log of a device's agent."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.text import Text

from edgefed.events.base.snapshot import DeviceSnapshot
from edgefed.tui.look.symbols import Glyphs
from edgefed.tui.look.text_format import clean
from edgefed.tui.look.theme import MUTED, ORANGE, VERMILLION
from edgefed.tui.panes.devices.device_detail import DevicePane
from edgefed.tui.state.display_state import Shown

_STAMP = re.compile(r"\d{4}-\d\d-\d\d (\d\d:\d\d:\d\d),\d{3} ")
"""The time before a line; the date and the milliseconds are left out."""

_COLOURS = {"WARNING": ORANGE, "ERROR": VERMILLION, "CRITICAL": VERMILLION}


class DeviceLogPane(DevicePane):
    """The newest lines that fit, oldest first.

    Attributes:
        tail: the lines; None until some have come.
        problem: why there are no newer ones; empty while there are.
    """

    def __init__(self, glyphs: Glyphs, device: str, *, id: str) -> None:  # noqa: A002
        super().__init__(glyphs, device, id=id)
        self.tail: tuple[str, ...] | None = None
        self.problem = ""

    def clear(self) -> None:
        """Forget all lines, which are then requested again, perhaps of another device."""
        self.tail, self.problem = None, ""

    def heading(self, shown: Shown) -> str:
        """Return the pane's name, with the clock of its times."""
        return "Log  times of the device's clock"

    def lines(self, view: DeviceSnapshot, shown: Shown, width: int, height: int) -> Iterable[Text]:
        """Return the newest lines, or why there are none."""
        if self.problem:
            key = shown.keys.label("detail.log")
            yield Text(f"{clean(self.problem)}  {key} twice asks again.", VERMILLION)
        if self.tail is None:
            if not self.problem:
                yield Text(f"Asking {clean(view.device)} for its log…", MUTED)
            return
        if not self.tail:
            yield Text("The agent has logged nothing yet.", MUTED)
        room = max(1, height - int(bool(self.problem)))
        yield from map(_line, self.tail[-room:])


def _line(line: str) -> Text:
    """Return a line with a short time, warnings and errors in colour."""
    text = clean(_STAMP.sub(r"\1 ", line, count=1))
    level = next((word for word in text.split(" ", 2)[:2] if word in _COLOURS), "")
    return Text(text, _COLOURS.get(level, ""))

"""The text that replaces the device table when it has no rows."""

from __future__ import annotations

from rich.text import Text

from edgefed.tui.look.symbols import Glyphs
from edgefed.tui.look.theme import MUTED
from edgefed.tui.panes.base.pane import Pane
from edgefed.tui.panes.devices.fleet_summary import no_device
from edgefed.tui.state.display_state import Shown


class DeviceNotice(Pane):
    """Shows why there are no rows: no device, no match, no snapshot yet, or a problem."""

    leads = True

    def __init__(self, glyphs: Glyphs, *, id: str) -> None:  # noqa: A002
        super().__init__(glyphs, id=id)
        self.query_text = ""

    def heading(self, shown: Shown) -> str:
        """Return nothing: it is within another pane."""
        return ""

    def footing(self, shown: Shown) -> str:
        """Return nothing: it is within another pane."""
        return ""

    def nothing(self, shown: Shown) -> str:
        """Return advice if no device ever answered."""
        return "" if shown.snapshot and shown.snapshot.devices else no_device(shown)

    def body(self, shown: Shown, width: int, height: int) -> Text:
        """Return the keys to show the devices again."""
        clear = shown.keys.label("devices.clear")
        return Text(f"No device matches {self.query_text!r}. {clear} clears the filter.", MUTED)

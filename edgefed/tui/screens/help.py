"""The help page of keys, generated from the registry of actions."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from edgefed.tui.keys.actions import PLACES, Place, actions_of
from edgefed.tui.keys.keymap import Keymap
from edgefed.tui.look.symbols import DEVICE_LOOKS, SYMBOLS, Glyphs
from edgefed.tui.look.theme import MUTED, SKY
from edgefed.tui.panes.base.curve import CURVE_MARKS
from edgefed.tui.screens.board import WIDTHS
from edgefed.tui.state.closing import Closing

_KEY_WIDTH = 8

_NOTES = (
    "It only watches and asks.",
    "Words and shapes carry the meaning, colour helps.",
    "Dimmed numbers are old. ctrl+p lists all commands.",
)


class HelpScreen(ModalScreen[None]):
    """Every key with its function."""

    HORIZONTAL_BREAKPOINTS = WIDTHS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Close"),
        Binding("q", "dismiss", "Close", id="view.back"),
        Binding("question_mark,f1", "dismiss", "Close", id="view.help"),
    ]

    def __init__(
        self, glyphs: Glyphs, closing: Closing, keys: Keymap, hidden: Place | None = None
    ) -> None:
        super().__init__()
        self._hidden = hidden
        self._keys = keys
        self._closes = closing
        self._glyphs = glyphs

    def compose(self) -> ComposeResult:
        """Lay out the page."""
        with VerticalScroll(id="help") as page:
            page.border_title = Content("Keys")
            page.border_subtitle = Content("esc Close")
            yield Static(self._glyphs.text(keys_text(self._keys, self._hidden)), id="help-keys")
            yield Static(self._glyphs.text(notes_text(self._closes)), id="help-notes")


def keys_text(keys: Keymap, hidden: Place | None = None) -> Text:
    """Return all keys by place, but for a place whose keys do not work now."""
    page = Text()
    for place, title in PLACES.items():
        if place == hidden:
            continue
        page.append(f"{title}\n", f"bold {SKY}").append_text(_keys(place, keys))
    page.rstrip()
    return page


def notes_text(closing: Closing) -> Text:
    """Return the meanings of all symbols, and a description of the dashboard."""
    page = Text().append("States\n", f"bold {SKY}")
    wide = max(map(len, DEVICE_LOOKS))
    for state, look in DEVICE_LOOKS.items():
        page.append(f"{look.symbol} {state:<{wide}}", look.colour)
        page.append(f"  {look.meaning}\n", MUTED)
    for title, marks in (("Curves", CURVE_MARKS), ("Elsewhere", SYMBOLS)):
        page.append(f"\n{title}\n", f"bold {SKY}")
        for mark, meaning in marks.items():
            page.append(f"{mark:<4}").append(f"{meaning}\n", MUTED)
    page.append("\nThe dashboard\n", f"bold {SKY}")
    return page.append(" ".join((_NOTES[0], closing.note, *_NOTES[1:])), MUTED)


def _keys(place: Place, keys: Keymap) -> Text:
    lines = Text()
    if place == "table":
        labels = " ".join(keys.label(action.name) for action in actions_of(place))
        words = ", ".join(action.word.lower() for action in actions_of(place))
        lines.append(f"  {labels:<{_KEY_WIDTH}}", "bold")
        return lines.append(f"{words}; arrows work too\n", MUTED)
    for action in actions_of(place):
        word = action.word.rstrip("…").lower()
        lines.append(f"  {keys.label(action.name):<{_KEY_WIDTH - 1}} ", "bold")
        lines.append(f"{word:<11}").append(f"{action.sentence}\n", MUTED)
    return lines

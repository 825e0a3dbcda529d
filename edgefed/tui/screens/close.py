"""The question before the dashboard is closed where more ends with it."""

from __future__ import annotations

from edgefed.tui.keys.keymap import Keymap
from edgefed.tui.look.symbols import Glyphs
from edgefed.tui.screens.question import QuestionScreen, QuestionText


class CloseScreen(QuestionScreen):
    """Answers True when the user wants to close; the key for quitting does that too."""

    def __init__(self, glyphs: Glyphs, text: str, keys: Keymap) -> None:
        hint = f"esc leaves, {keys.label('app.quit')} closes"
        super().__init__(glyphs, QuestionText("Close the dashboard?", text, "Close", hint=hint))

"""The base of all panes: text in a border, redrawn only after a change, in four states."""

from __future__ import annotations

from rich.text import Text
from textual.content import Content
from textual.widget import Widget

from edgefed.tui.look.symbols import Glyphs
from edgefed.tui.look.theme import MUTED, VERMILLION
from edgefed.tui.state.display_state import Shown
from edgefed.tui.state.problems import next_step, reason

LOADING_AFTER = 0.3
"""Seconds of silence after which a pane says that it waits."""


class Pane(Widget):
    """A part of a screen that shows a snapshot.

    A pane without numbers shows one of three other faces instead: why there are none (empty), that
    it waits for the first ones (loading), or a problem (error). In the fourth face, when the
    numbers may be old, it dims them and shows their time.
    """

    can_focus = False

    leads = False
    """Whether it is its screen's first pane, which shows a problem with advice."""

    def __init__(self, glyphs: Glyphs, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self.glyphs = glyphs
        self.shown: Shown | None = None
        self._drawn: tuple[Text, str, str] | None = None

    def body(self, shown: Shown, width: int, height: int) -> Text:
        """Return the pane's text of ``width`` by ``height`` cells when there are numbers."""
        raise NotImplementedError

    def heading(self, shown: Shown) -> str:
        """Return the text in the upper border."""
        raise NotImplementedError

    def footing(self, shown: Shown) -> str:
        """Return the text in the lower border."""
        return f"from {shown.time_of(shown.update.since)}" if stale(shown) else ""

    def nothing(self, shown: Shown) -> str:
        """Return why there are no numbers, with advice; empty when there are some."""
        return "" if shown.run else shown.starting or shown.commands.no_run

    def error(self, shown: Shown) -> Text:
        """Return the text when there never were numbers because of a problem."""
        return what_and_next(shown) if self.leads else Text("No numbers: see above.", MUTED)

    def show(self, shown: Shown) -> None:
        """Take a new drawing; repaint only if something visible changed."""
        self.shown = shown
        self.set_class(shown.broken and shown.snapshot is not None, "-stale")
        self.set_class(self.face(shown) is not None, "-face")
        if not self.size:  # not laid out yet; its first size draws it
            return
        drawn = (self.draw(shown), self.heading(shown), self.footing(shown))
        if drawn == self._drawn:
            return
        self._drawn = drawn
        self.border_title = Content(self.glyphs.line(drawn[1])) if drawn[1] else None
        self.border_subtitle = Content(self.glyphs.line(drawn[2])) if drawn[2] else None
        self.refresh()

    def draw(self, shown: Shown) -> Text:
        """Return the pane's text at its present size: its numbers, or the face in their place."""
        face = self.face(shown)
        if face is None:
            face = self.body(shown, self.size.width, self.size.height)
        return self.glyphs.text(face)

    def face(self, shown: Shown) -> Text | None:
        """Return the empty, loading or error face, None when there are numbers to show."""
        if shown.snapshot is None:
            return self.error(shown) if shown.broken else _loading(shown)
        reason = self.nothing(shown)
        return Text(reason, MUTED) if reason else None

    def on_resize(self) -> None:
        """Headings and columns depend on the width."""
        if self.shown is not None:
            self._drawn = None
            self.show(self.shown)

    def render(self) -> Text:
        """Return the text that was drawn last."""
        return self._drawn[0] if self._drawn else Text()


def stale(shown: Shown) -> bool:
    """Return whether the numbers are known to be old."""
    return shown.broken and shown.snapshot is not None and bool(shown.update.since)


def what_and_next(shown: Shown) -> Text:
    """Return the problem and advice, a line each."""
    lines = f"{reason(shown.update)}\n{next_step(shown.update)}"
    return Text(lines, VERMILLION)


def _loading(shown: Shown) -> Text:
    waits = "Waiting for the coordinator…" if shown.waited >= LOADING_AFTER else ""
    return Text(shown.starting or waits, MUTED)

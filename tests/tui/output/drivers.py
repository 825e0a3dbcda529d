"""A terminal in the test's own process, for an app that draws as in a real one."""

from __future__ import annotations

from typing import Any

from textual import events
from textual.driver import Driver
from textual.geometry import Size

from edgefed.tui.app import Dashboard
from tests.support.terminal_screen import TerminalScreen


class ScreenDriver(Driver):
    """Draws into a screen.

    Attributes:
        shown: the screen.
        bytes: how many were written.
        answers: whether questions are answered at once.
        questions: those that were not answered.
    """

    def __init__(self, app: Dashboard, **options: Any) -> None:
        super().__init__(app, **options)
        assert self._size is not None
        self.shown = TerminalScreen(*self._size)
        self.bytes = 0
        self.answers = True
        self.questions = 0

    def write(self, data: str) -> None:
        self.bytes += len(data.encode())
        if self.shown.take(data.encode()):
            self.questions += 1
        if self.answers:
            self.answer()

    def answer(self) -> None:
        """Answer all questions."""
        while self.questions:
            self.questions -= 1
            self.process_message(events.CursorPosition(0, 0))

    def resize(self, columns: int, lines: int) -> None:
        """Change the size; the terminal shows nothing then."""
        self.shown = TerminalScreen(columns, lines)
        size = Size(columns, lines)
        self.process_message(events.Resize(size, size))

    def start_application_mode(self) -> None:
        size = Size(*self._size or (0, 0))
        self.process_message(events.Resize(size, size))

    def disable_input(self) -> None:
        pass

    def stop_application_mode(self) -> None:
        pass


def driver_of(app: Dashboard) -> ScreenDriver:
    """Return the terminal of a running app."""
    driver = app._driver
    assert isinstance(driver, ScreenDriver)
    return driver

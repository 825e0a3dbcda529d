"""A bar on a terminal says how much is done and how long the rest takes; elsewhere it is silent."""

from __future__ import annotations

import io
import re
from datetime import datetime

import pytest

from edgefed.terminal.progress_bar import START, ProgressBar


class Steps:
    """A clock whose time a test sets."""

    def __init__(self) -> None:
        self.time = 0.0

    def monotonic(self) -> float:
        return self.time

    def now(self) -> datetime:
        raise NotImplementedError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    @property
    def line(self) -> str:
        """What was drawn last, without colours."""
        return re.sub(r"\x1b\[[0-9;]*m", "", self.getvalue().rpartition(START)[2])


@pytest.fixture(autouse=True)
def terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)


def bar() -> tuple[ProgressBar, Terminal, Steps]:
    terminal, clock = Terminal(), Steps()
    return ProgressBar(terminal, clock), terminal, clock


def test_the_time_left_is_unknown_until_a_step_has_ended() -> None:
    shown, terminal, clock = bar()
    shown.show("rounds", 0, 40)
    assert terminal.line.endswith(" 0/40  ? s left")
    clock.time = 10.0
    shown.show("rounds", 0, 40)
    assert terminal.line.endswith(" 0/40  ? s left")
    clock.time = 30.0
    shown.show("rounds", 10, 40)
    assert terminal.line.endswith(" 10/40  90 s left")
    shown.show("rounds", 40, 40)
    assert terminal.line.endswith(" 40/40")


def test_steps_that_were_done_before_do_not_count_as_fast() -> None:
    shown, terminal, clock = bar()
    shown.show("rounds", 20, 40)
    clock.time = 30.0
    shown.show("rounds", 21, 40)
    assert terminal.line.endswith(" 21/40  9 min 30 s left")


def test_the_time_left_stands_still_while_a_step_takes_longer_than_the_others() -> None:
    shown, terminal, clock = bar()
    shown.show("rounds", 0, 3)
    clock.time = 10.0
    shown.show("rounds", 1, 3)
    assert terminal.line.endswith("20 s left")
    for clock.time, left in ((14.0, 16), (20.0, 10), (90.0, 10)):
        shown.show("rounds", 1, 3, note="")
        assert terminal.line.endswith(f" {left} s left")


def test_another_state_begins_another_measurement() -> None:
    shown, terminal, clock = bar()
    shown.show("r-1 running", 0, 4)
    clock.time = 10.0
    shown.show("r-1 running", 1, 4)
    shown.show("r-1 paused", 1, 4)
    assert terminal.line.endswith(" 1/4  ? s left")


def test_the_line_never_wraps_and_moves_no_cursor() -> None:
    shown, terminal, _ = bar()
    shown.show("rounds", 1, 40, "accuracy 0.8\x1b[2J" + "x" * 200)
    assert len(terminal.line) <= 80
    assert terminal.line.endswith("…")
    assert "\x1b[2J" not in terminal.getvalue()
    assert "\x1b[?25l" not in terminal.getvalue()  # hides the cursor


def test_a_bar_that_is_removed_leaves_an_empty_line() -> None:
    shown, terminal, _ = bar()
    shown.clear()
    assert terminal.getvalue() == ""
    shown.show("rounds", 1, 40)
    shown.clear()
    assert terminal.line == ""


def test_many_quick_steps_are_drawn_once_and_the_last_one_always() -> None:
    shown, terminal, _ = bar()
    for step in range(1001):
        shown.show("decoding images", step, 1000)
    assert terminal.getvalue().count(START) == 2
    assert " 1,000/1,000" in terminal.line


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_cannot_redraw_has_no_bar(
    term: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    shown, terminal, _ = bar()
    shown.show("rounds", 1, 40)
    assert terminal.getvalue() == ""


def test_a_file_and_a_quiet_command_have_no_bar() -> None:
    file, terminal = io.StringIO(), Terminal()
    ProgressBar(file, Steps()).show("rounds", 1, 40)
    ProgressBar(terminal, Steps(), quiet=True).show("rounds", 1, 40)
    assert file.getvalue() == terminal.getvalue() == ""


def test_colours_are_left_out_where_nobody_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, coloured, _ = bar()
    shown.show("rounds", 1, 40)
    assert "\x1b[3" in coloured.getvalue() or "\x1b[9" in coloured.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    shown, plain, _ = bar()
    shown.show("rounds", 1, 40)
    assert "\x1b[3" not in plain.getvalue() and "\x1b[9" not in plain.getvalue()

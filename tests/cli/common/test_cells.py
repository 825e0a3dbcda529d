"""State words in tables have the dashboard's symbols, and colours where a terminal takes them."""

from __future__ import annotations

import io
import os
import pty
import sys
from pathlib import Path

import pytest

from edgefed.cli.common.cells import DEVICE_MARKS, RUN_MARKS, device_state, run_status
from edgefed.terminal.console import Coloured, checks, columns
from edgefed.tui.look.symbols import DEVICE_LOOKS, RUN_LOOKS, Glyphs
from edgefed.tui.look.theme import GREEN, MUTED, ORANGE, PURPLE, SKY, VERMILLION, YELLOW
from tests.cli.commands import TINY, edgefed, recipe_file
from tests.processes import clean_environment
from tests.programs.forked_programs import ForkedProgram

HUES = {
    MUTED: "dim",
    YELLOW: "yellow",
    ORANGE: "yellow",
    SKY: "cyan",
    PURPLE: "magenta",
    GREEN: "green",
    VERMILLION: "red",
}


class Stream(io.TextIOWrapper):
    """Stdout as a terminal, or as a pipe."""

    def __init__(self, *, terminal: bool = True, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.fixture(autouse=True)
def colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_every_state_has_the_symbol_and_the_colour_of_the_dashboard() -> None:
    for looks, marks in ((DEVICE_LOOKS, DEVICE_MARKS), (RUN_LOOKS, RUN_MARKS)):
        expected = {
            state: (look.symbol, Glyphs(ascii=True).line(look.symbol), HUES[look.colour])
            for state, look in looks.items()
        }
        assert marks == expected


def test_a_terminal_shows_symbol_and_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Stream())
    assert columns([(device_state("lost"), "x")]) == "\x1b[31m✗ lost\x1b[0m  x"
    assert columns([(run_status("failed", ": no disk"),)]) == "\x1b[31m✗ failed: no disk\x1b[0m"
    assert columns([("a", device_state("idle"))]) == "a  \x1b[2m○ idle\x1b[0m"


def test_colours_do_not_move_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Stream())
    text = columns([("STATE", "N"), (device_state("lost"), "1"), (device_state("train"), "2")])
    plain = text.replace("\x1b[31m", "").replace("\x1b[36m", "").replace("\x1b[0m", "")
    assert plain.splitlines() == ["STATE    N", "✗ lost   1", "● train  2"]


def test_a_pipe_gets_the_words_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Stream(terminal=False))
    assert columns([(device_state("lost"), run_status("running", ": x"))]) == "lost  running: x"
    assert columns([(Coloured("quarantined", "red"),)]) == "quarantined"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_terminals_without_colours_keep_the_symbols(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", Stream())
    monkeypatch.setenv(name, value)
    assert columns([(device_state("lost"), "x")]) == "✗ lost  x"


def test_a_terminal_without_symbols_shows_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Stream(encoding="ascii"))
    assert device_state("lost") == "x lost"


def test_checks_are_green_yellow_and_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Stream())
    lines = checks([("✓", "python"), ("!", "kernels"), ("✗", "broker")]).splitlines()
    assert [line[:5] for line in lines] == ["\x1b[32m", "\x1b[33m", "\x1b[31m"]


def test_a_list_of_runs_is_coloured_unless_nobody_wants_it(tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert edgefed("sim", "run", recipe_file(tmp_path, TINY), state=state).code == 0
    environment = {**clean_environment(), "EDGEFED_STATE": str(state), "TERM": "xterm"}
    for options in ([], ["--no-color"]):
        ours, theirs = pty.openpty()
        words = ["edgefed.cli.main", *options, "run", "list", "--local"]
        program = ForkedProgram(words, environment, Path(os.ttyname(theirs)))
        assert program.wait() == 0
        shown = os.read(ours, 65_536).decode()
        os.close(theirs)
        os.close(ours)
        assert "✓ finished" in shown
        assert ("\x1b[32m" in shown) == (not options)

"""Changed cells alone make a terminal show the same as a full redraw."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.color import ColorSystem
from rich.control import Control
from rich.segment import Segment
from rich.style import Style

from edgefed.tui.output.cells import Cell, Cells, cells_of
from tests.support.terminal_screen import TerminalScreen

COLUMNS, LINES = 12, 3
SYSTEMS = (ColorSystem.TRUECOLOR, ColorSystem.EIGHT_BIT, ColorSystem.STANDARD)

styles = st.one_of(
    st.none(),
    st.builds(
        Style,
        color=st.sampled_from([None, "default", "red", "#88aaff", "#101010"]),
        bgcolor=st.sampled_from([None, "default", "blue", "#202020"]),
        bold=st.booleans(),
        dim=st.booleans(),
        underline=st.booleans(),
        reverse=st.booleans(),
        strike=st.booleans(),
    ),
)
texts = st.text("ab  ─█⣿é世界🚀e\u0301", min_size=1, max_size=8)
segments = st.lists(st.builds(Segment, texts, styles), max_size=3)
puts = st.tuples(st.integers(0, COLUMNS - 1), st.integers(0, LINES - 1), segments)
frames = st.lists(st.lists(puts, max_size=4), min_size=1, max_size=4)


def drawn(cells: Cells, puts: list[tuple[int, int, list[Segment]]], system: ColorSystem) -> None:
    """Put whole segments that fit, as Textual does."""
    for x, y, line in puts:
        if sum(cell_len(segment.text) for segment in line) <= COLUMNS - x:
            cells.put(x, y, _whole(cells_of(line, system), cells, x, y))


def _whole(new: list[Cell], cells: Cells, x: int, y: int) -> list[Cell]:
    """Return cells that cut no wide character of the row in two, as Textual makes them."""
    row = cells._newest[y]
    if not new or not row[x][0] or (x + len(new) < COLUMNS and not row[x + len(new)][0]):
        return []
    return new


@given(frames=frames, system=st.sampled_from(SYSTEMS))
def test_changes_show_the_same_as_a_full_redraw(
    frames: list[list[tuple[int, int, list[Segment]]]], system: ColorSystem
) -> None:
    cells, screen = Cells(), TerminalScreen(COLUMNS, LINES)
    cells.resize(COLUMNS, LINES)
    for frame in frames:
        drawn(cells, frame, system)
        screen.take(cells.changes().encode())
        assert cells.changes() == ""
        cells.forget()
        whole = TerminalScreen(COLUMNS, LINES)
        whole.take(cells.changes().encode())
        assert screen.picture() == whole.picture()
        assert [[text for text, _ in row] for row in screen.cells] == [
            [text for text, _ in row] for row in cells._newest
        ]


@pytest.mark.parametrize(
    ("style", "system", "pen"),
    [
        ("red on blue", ColorSystem.STANDARD, ("31", "44", frozenset())),
        ("bold #010203", ColorSystem.TRUECOLOR, ("2;1;2;3", "", frozenset("1"))),
        ("reverse on #ffffff", ColorSystem.EIGHT_BIT, ("", "5;231", frozenset("7"))),
        ("underline2 strike overline", ColorSystem.TRUECOLOR, ("", "", {"21", "9", "53"})),
        ("dim italic blink blink2 conceal", ColorSystem.TRUECOLOR, ("", "", set("23568"))),
        ("default on default", ColorSystem.TRUECOLOR, ("", "", frozenset())),
    ],
)
def test_the_terminal_gets_the_style(style: str, system: ColorSystem, pen: object) -> None:
    cells, screen = Cells(), TerminalScreen(COLUMNS, LINES)
    cells.resize(COLUMNS, LINES)
    line = [Segment(char, Style.parse(style)) for char in "éx"]
    cells.put(3, 1, cells_of(line, system))
    screen.take(cells.changes().encode())
    assert screen.cells[1][3:5] == [("é", pen), ("x", pen)]


def test_only_what_differs_is_written() -> None:
    cells = Cells()
    cells.resize(40, 2)
    line = [Segment("round 12  accuracy 0.912", Style.parse("#aabbcc on #000000"))]
    cells.put(0, 1, cells_of(line, ColorSystem.TRUECOLOR))
    cells.changes()
    line = [Segment("round 13  accuracy 0.913", Style.parse("#aabbcc on #000000"))]
    cells.put(0, 1, cells_of(line, ColorSystem.TRUECOLOR))
    style = "\x1b[38;2;170;187;204;48;2;0;0;0m"
    assert cells.changed
    assert cells.changes() == f"\x1b[2;8H{style}3\x1b[24G3\x1b[m"
    assert not cells.changed


def test_a_few_equal_cells_are_written_rather_than_passed_over() -> None:
    cells = Cells()
    cells.resize(20, 1)
    cells.put(0, 0, cells_of([Segment("a--b")], ColorSystem.TRUECOLOR))
    cells.changes()
    cells.put(0, 0, cells_of([Segment("c--d")], ColorSystem.TRUECOLOR))
    assert cells.changes() == "\x1b[1Hc--d\x1b[m"


def test_a_wide_character_is_written_once() -> None:
    cells = Cells()
    cells.resize(20, 1)
    cells.put(0, 0, cells_of([Segment("ab")], ColorSystem.TRUECOLOR))
    cells.changes()
    cells.put(0, 0, cells_of([Segment("世")], ColorSystem.TRUECOLOR))
    assert cells.changes() == "\x1b[1H世\x1b[m"


def test_another_size_keeps_what_fits_and_writes_everything() -> None:
    cells, screen = Cells(), TerminalScreen(6, 3)
    cells.resize(8, 2)
    cells.put(0, 0, cells_of([Segment("abcdefgh")], ColorSystem.TRUECOLOR))
    cells.changes()
    cells.resize(6, 3)
    screen.take(cells.changes().encode())
    assert screen.text() == "abcdef\n      \n      "


def test_what_does_not_fit_is_left_out() -> None:
    cells, screen = Cells(), TerminalScreen(4, 1)
    cells.resize(4, 1)
    for x, y in ((2, 0), (4, 0), (0, 1), (-1, 0), (0, -1)):
        cells.put(x, y, cells_of([Segment("abc")], ColorSystem.TRUECOLOR))
    screen.take(cells.changes().encode())
    assert screen.text() == "  ab"


def test_characters_that_join_are_written_as_a_whole() -> None:
    family = "👩\u200d👧"
    cells = cells_of([Segment(f"{family}x")], ColorSystem.TRUECOLOR)
    assert "".join(text for text, _ in cells) == f"{family}x"
    assert len(cells) == cell_len(f"{family}x")


def test_control_codes_and_stray_marks_take_no_cell() -> None:
    segments = [Segment("\u0301"), Segment("a"), Control.home().segment]
    assert cells_of(segments, ColorSystem.TRUECOLOR) == [("a", ("", "", ""))]

"""Tables on a terminal: the last column wraps at words."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefed.terminal.console import LEAST_WRAPPED, columns, data, json_out, talk

ROWS = [
    ("prune", "0.0", "A device does not use an expert whose share is small"),
    ("most_experts", "0", "No limit"),
]


def test_the_last_column_is_wrapped_below_itself() -> None:
    assert columns(ROWS, 47).splitlines() == [
        "prune         0.0  A device does not use an",
        "                   expert whose share is small",
        "most_experts  0    No limit",
    ]


def test_a_file_has_one_line_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(columns(ROWS).splitlines()) == 2
    assert len(columns(ROWS, 10).splitlines()) > 2  # too narrow for any of it


@given(st.lists(st.text("ab ", max_size=60), min_size=1, max_size=5), st.integers(30, 80))
def test_no_word_is_lost_and_no_line_is_longer(last: list[str], width: int) -> None:
    rows = [("key", text) for text in last]
    lines = columns(rows, width).splitlines()
    told = " ".join(line.removeprefix("key") for line in lines).split()
    assert "".join(told) == "".join("".join(text.split()) for text in last)
    longest = max((len(word) for text in last for word in text.split()), default=0)
    assert all(len(line) <= max(width, 5 + LEAST_WRAPPED) or longest > width - 5 for line in lines)


def test_a_cell_of_a_device_controls_no_terminal() -> None:
    evil = "board\x1b]0;owned\x07\x9b2J\nx\u202e"
    (line,) = columns([("cam-1", evil)]).splitlines()
    assert line == "cam-1  board?]0;owned??2J?x?"


def test_what_is_printed_controls_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    data("a\tb\n\x1b[31mred\x1b[0m \x1b[2Jx\x1b]52;c;eA==\x07\r")
    talk("\x1b[8mhidden")
    printed = capsys.readouterr()
    assert printed.out == "a\tb\n\x1b[31mred\x1b[0m ?[2Jx?]52;c;eA==??\n"
    assert printed.err == "?[8mhidden\n"


def test_json_keeps_every_character_and_controls_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = {"reason": "\x1b[2J\x9b2J \u202e\x7f é"}
    json_out(told)
    printed = capsys.readouterr().out
    assert json.loads(printed) == told
    assert printed.strip().isprintable()

"""What ``run watch`` prints beside rounds: warnings, and why devices refused, each once."""

from __future__ import annotations

import io
import sys
import threading

import pytest

from edgefed.cli.programs.follow_run import _note, _Printer
from edgefed.events.base.snapshot import LineView, RoundView, RunView, Snapshot
from edgefed.events.state.feed_update import FeedUpdate
from edgefed.terminal.console import reported

LINES = (
    LineView(time="3", mark="!", text="8 label bounties closed"),
    LineView(time="2", mark="■", text="cam-1  refused: it does not share"),
    LineView(time="1", mark="·", text="cam-1 joined"),
)


def printed(capsys: pytest.CaptureFixture[str], *, quiet: bool = False) -> list[str]:
    """Return the lines on stderr after two updates with the same event lines."""
    printer = _Printer("r-1", quiet, False, threading.Event())
    for _ in range(2):
        printer.take(FeedUpdate(Snapshot(run=RunView(run="r-1"), lines=LINES), True, True))
    return capsys.readouterr().err.splitlines()


def test_warnings_and_refusals_are_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys) == [
        "■ cam-1  refused: it does not share",
        "! 8 label bounties closed",
    ]
    assert printed(capsys, quiet=True) == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_finished_rounds_as_a_bar_and_warnings_above_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    run = RunView(run="r-1", status="running", round=3, rounds=9, wanted=8, accepted=5)
    rounds = (RoundView(round=1), RoundView(round=2, accuracy=0.5))
    with reported():
        printer = _Printer("r-1", False, False, threading.Event())
        snapshot = Snapshot(run=run, rounds=rounds, lines=LINES[:1])
        printer.take(FeedUpdate(snapshot, True, True))
        assert "! 8 label bounties closed\n" in terminal.getvalue()
        line = terminal.getvalue().rpartition("\x1b[K")[2]
        assert line.startswith("r-1  running ") and " 2/9  ? s left  round 3  5/8" in line
        assert "round 1/9" not in terminal.getvalue()
        printer.take(FeedUpdate(Snapshot(run=run, rounds=rounds, lines=LINES), True, True))
        assert "\r\x1b[K■ cam-1  refused: it does not share\n" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_the_bar_names_one_of_several_exchanges_of_a_round() -> None:
    run = RunView(run="r-1", status="running", round=2, rounds=9, question="layer", wanted=8)
    assert _note(Snapshot(run=run), run) == "round 2  0/8"
    run = run.model_copy(update={"detail": "conv2, 2 of 4", "accepted": 3})
    assert _note(Snapshot(run=run), run) == "round 2  layer conv2, 2 of 4  3/8"

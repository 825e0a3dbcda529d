"""What ``run watch`` prints beside rounds: warnings, and why devices refused, each once."""

from __future__ import annotations

import threading

import pytest

from edgefed.cli.follow_run import _line, _Printer
from edgefed.events.feed_update import FeedUpdate
from edgefed.events.snapshot import LineView, RunView, Snapshot

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


def test_the_progress_line_names_one_of_several_exchanges_of_a_round() -> None:
    run = RunView(run="r-1", status="running", round=2, rounds=9, question="layer", wanted=8)
    assert _line(Snapshot(run=run), run) == "r-1  running  round 2/9  0/8"
    run = run.model_copy(update={"detail": "conv2, 2 of 4", "accepted": 3})
    assert _line(Snapshot(run=run), run) == "r-1  running  round 2/9  layer conv2, 2 of 4  3/8"

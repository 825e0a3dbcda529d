"""What ``run watch`` prints beside rounds: warnings, and why devices refused, each once."""

from __future__ import annotations

import threading

import pytest

from edgefed.cli.follow_run import _Printer
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

"""Cells of tables: states with their marks and colours, and how long ago something was."""

from __future__ import annotations

import sys

from edgefed.process.clock import SystemClock, moment_of, timestamp
from edgefed.terminal.console import Colour, Coloured
from edgefed.terminal.terminals import is_terminal
from edgefed.terminal.units import ago as time_ago

DEVICE_MARKS: dict[str, tuple[str, str, Colour]] = {
    "idle": ("○", "o", "dim"),
    "asked": ("◔", "i", "yellow"),
    "invited": ("◔", "i", "yellow"),
    "download": ("▽", "v", "cyan"),
    "train": ("●", "*", "cyan"),
    "evaluate": ("◆", "e", "magenta"),
    "upload": ("▲", "^", "cyan"),
    "done": ("✓", "+", "green"),
    "paused": ("◌", "p", "yellow"),
    "excluded": ("□", "n", "yellow"),
    "quarantined": ("!", "!", "red"),
    "late": ("◷", "l", "yellow"),
    "rejected": ("■", "r", "red"),
    "failed": ("✗", "x", "red"),
    "silent": ("?", "?", "red"),
    "lost": ("✗", "x", "red"),
}
"""For each state of a device its symbol, a letter for terminals without it, and its colour."""

RUN_MARKS: dict[str, tuple[str, str, Colour]] = {
    "waiting": ("◔", "i", "yellow"),
    "running": ("●", "*", "cyan"),
    "pausing": ("◌", "p", "yellow"),
    "paused": ("◌", "p", "yellow"),
    "finishing": ("●", "*", "cyan"),
    "finished": ("✓", "+", "green"),
    "aborted": ("■", "r", "red"),
    "failed": ("✗", "x", "red"),
}
"""The same for each status of a run."""

STANDING_COLOURS: dict[str, Colour] = {"suspect": "yellow", "quarantined": "red"}
"""Colours of devices whose replies were refused."""


def device_state(state: str) -> str:
    """Return a device's state for a table."""
    return _marked(state, DEVICE_MARKS)


def run_status(status: str, reason: str = "") -> str:
    """Return a run's status for a table, followed by its reason."""
    return _marked(status, RUN_MARKS, reason)


def _marked(word: str, marks: dict[str, tuple[str, str, Colour]], more: str = "") -> str:
    """Return a word with its mark; a program that reads the output gets the word alone."""
    if word not in marks or not is_terminal(sys.stdout):
        return f"{word}{more}"
    symbol, letter, colour = marks[word]
    shown = symbol if "utf" in (sys.stdout.encoding or "").lower() else letter
    return Coloured(f"{shown} {word}{more}", colour)


def ago(stamp: str, now: str = "") -> str:
    """Return how long ago a timestamp was, such as ``3 min ago``; nothing for none.

    Args:
        stamp: ISO 8601, as the coordinator writes it.
        now: the same, by the same machine's clock; the time of this machine when left out.
    """
    if not stamp:
        return ""
    until = moment_of(now or timestamp(SystemClock().now()))
    return time_ago((until - moment_of(stamp)).total_seconds())

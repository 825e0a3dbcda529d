"""Words of states in tables: on a terminal with the dashboard's symbol, and in its colour."""

from __future__ import annotations

import sys

from edgefed.console import Colour, Coloured
from edgefed.terminals import is_terminal

DEVICE_MARKS: dict[str, tuple[str, str, Colour]] = {
    "idle": ("○", "o", "dim"),
    "invited": ("◔", "i", "yellow"),
    "download": ("▽", "v", "cyan"),
    "train": ("●", "*", "cyan"),
    "evaluate": ("◆", "e", "magenta"),
    "upload": ("▲", "^", "cyan"),
    "done": ("✓", "+", "green"),
    "paused": ("◌", "p", "yellow"),
    "excluded": ("□", "n", "yellow"),
    "late": ("◷", "l", "yellow"),
    "rejected": ("■", "r", "red"),
    "failed": ("✗", "x", "red"),
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

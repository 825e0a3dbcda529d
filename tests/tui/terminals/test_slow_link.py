"""The dashboard over a link that takes 10 kB in a second, in a terminal of its own."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks.fleets.terminal import Terminal, edgefed_in_terminal
from tests.tui.recorded_fleet import record

pytestmark = pytest.mark.slow

RATE = 10_000.0
LIMIT = 10.0
"""Seconds for a key: many times what it takes, but less than full frames would wait."""

SCREENS = {"2": ("Devices 40", "y Copy id"), "1": ("Round ", "Events ─")}
"""Texts at both ends of a screen, by its key."""


def test_a_key_shows_its_effect_while_everything_changes(tmp_path: Path) -> None:
    """A recording is replayed as fast as it can be."""
    path = record(tmp_path / "events.jsonl")
    words = ["--no-config", "--state", str(tmp_path), "ui", "--replay", str(path), "--speed", "64"]
    with edgefed_in_terminal(words, {}, size=(120, 36), rate=RATE, answers=True) as shown:
        shown.until(*SCREENS["1"])
        for key in "21":
            shown.press(key)
            assert shown.until(*SCREENS[key]) < LIMIT
            _is_quiet(shown)


def _is_quiet(shown: Terminal) -> None:
    """Wait until the terminal has taken all that was written, and is not far behind then."""
    ends = time.monotonic() + LIMIT
    before = -1
    while before < shown.bytes - RATE / 2:
        assert time.monotonic() < ends
        before = shown.bytes
        time.sleep(1.0)

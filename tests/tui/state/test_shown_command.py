"""Tests of the command line as the form of a new run shows it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefed.tui.screens.run_form import shown_command


def test_a_short_command_is_shown_whole() -> None:
    command = "edgefed run start night.toml --set seed=7"
    assert shown_command(command, 76, 2) == command


def test_lines_break_at_words() -> None:
    shown = shown_command("edgefed run start night.toml --set training.learning-rate=0.1", 45, 2)
    assert shown == "edgefed run start night.toml --set\ntraining.learning-rate=0.1"


def test_a_long_state_folder_does_not_hide_what_is_started() -> None:
    command = f"edgefed --no-config --state /{'long/' * 40} run start night.toml --set seed=7"
    assert shown_command(command, 76, 2) == "edgefed … run start night.toml --set seed=7"


@pytest.mark.parametrize("width", [20, 76])
def test_many_changes_keep_the_first_and_the_last(width: int) -> None:
    changes = " ".join(f"--set key{number}={number}" for number in range(40))
    shown = shown_command(f"edgefed --json run start a.toml {changes}", width, 2)
    assert shown.startswith("edgefed … ru")
    assert shown.endswith("key39=39") and "…" in shown


@given(st.text(max_size=300), st.integers(1, 90), st.integers(1, 4))
def test_it_always_fits(text: str, width: int, lines: int) -> None:
    shown = shown_command(f"edgefed --state {text} run start", width, lines).split("\n")
    assert len(shown) <= lines
    assert max(len(line) for line in shown) <= width

"""Long commands on a terminal: a bar with the time left, and a clean terminal however they end."""

from __future__ import annotations

import os
import pty
import select
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.commands import TINY, edgefed, recipe_file
from tests.processes import PATIENCE, clean_environment
from tests.programs.forked_programs import ForkedProgram

pytestmark = pytest.mark.slow

HIDE_CURSOR = "\x1b[?25l"


class OnTerminal:
    """A command whose stderr is a terminal."""

    def __init__(self, words: Sequence[str | Path], state: Path) -> None:
        self._ours, theirs = pty.openpty()
        self._out = state / "stdout"
        self.shown = ""
        environment = {**clean_environment(), "EDGEFED_STATE": str(state), "TERM": "xterm"}
        terminal = Path(os.ttyname(theirs))
        self.process = ForkedProgram(
            ["edgefed.cli.main", *map(str, words)], environment, self._out, terminal
        )
        self._theirs = [theirs]  # is open until the program has it

    def read_until(self, text: str) -> None:
        """Read what is shown until a text is there; all of it for a text that never comes."""
        end = time.monotonic() + PATIENCE
        while text not in self.shown:
            if time.monotonic() > end:
                self.process.kill()
                raise AssertionError(self.shown)
            if not select.select([self._ours], [], [], 1.0)[0]:
                continue
            try:
                self.shown += os.read(self._ours, 65_536).decode(errors="replace")
            except OSError:  # nobody has the other side open any more
                return
            while self._theirs:
                os.close(self._theirs.pop())

    def ended(self) -> tuple[int, str]:
        """Return the exit code and stdout."""
        self.read_until("never shown")
        code = self.process.wait(PATIENCE)
        os.close(self._ours)
        return code, self._out.read_text()


def last_line(shown: str) -> str:
    """Return what the terminal's last line holds after everything was shown."""
    return shown.rpartition("\n")[2].rpartition("\r\x1b[K")[2]


def test_a_simulation_shows_its_rounds_and_the_time_left(tmp_path: Path) -> None:
    command = OnTerminal(["sim", "run", recipe_file(tmp_path, TINY)], tmp_path)
    code, out = command.ended()
    assert code == 0
    assert " 0/3  ? s left" in command.shown
    assert " 3/3  accuracy " in command.shown
    assert "0/3" not in out and "\x1b" not in out
    assert last_line(command.shown) == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_simulation_that_is_ended_leaves_a_clean_terminal_and_is_listed_as_aborted(
    number: signal.Signals, tmp_path: Path
) -> None:
    recipe = recipe_file(tmp_path, TINY.replace("count = 3", "count = 100000"))
    command = OnTerminal(["sim", "run", recipe], tmp_path)
    command.read_until(" left  accuracy")
    os.kill(command.process.pid, number)
    code, out = command.ended()
    assert (code, out) == (128 + number, "")
    assert last_line(command.shown) == ""
    assert HIDE_CURSOR not in command.shown
    if number == signal.SIGINT:
        assert command.shown.endswith("\r\x1b[Kedgefed: error: Interrupted.  [interrupted]\r\n")
    listed = edgefed("run", "list", "--local", "--json", state=tmp_path).json
    assert [(run["status"], run["reason"]) for run in listed] == [("aborted", "interrupted")]


def test_a_sweep_counts_runs_and_names_the_one_at_work(tmp_path: Path) -> None:
    recipe_file(tmp_path, TINY)
    sweep = tmp_path / "sweep.toml"
    sweep.write_text('recipe = "recipe.toml"\nseeds = [1, 2]\n[grid]\ntraining.epochs = [1]\n')
    command = OnTerminal(["sim", "sweep", sweep], tmp_path)
    code, _ = command.ended()
    assert code == 0, command.shown
    assert "runs " in command.shown and " 1/2  " in command.shown
    assert "seed 2  round 1/3" in command.shown
    lines = [line.rpartition("\x1b[K")[2] for line in command.shown.splitlines()]
    assert [line[:5] for line in lines if line.startswith("[")] == ["[1/2]", "[2/2]"]


def test_without_a_terminal_there_is_no_bar(tmp_path: Path) -> None:
    told = edgefed("sim", "run", recipe_file(tmp_path, TINY), state=tmp_path)
    assert told.code == 0
    assert "\r" not in told.err and "left" not in told.err

"""A fleet on one machine ends with one line and leaves no process, however it is ended."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from edgefed.cli.fleet.demo import FLEET
from edgefed.config.values.address import Address
from edgefed.control.coordinator_client import CoordinatorClient
from tests.cli.commands import TINY, recipe_file
from tests.cli.conftest import SmallFleet
from tests.processes import PATIENCE, clean_environment
from tests.programs.forked_fleet import ForkedProcesses, demo_here
from tests.programs.forked_programs import ForkedProgram
from tests.transport.listening import wait_until

pytestmark = pytest.mark.mosquitto


class Started:
    """``edgefed``, whose child processes are started as any other program's."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._out, self._err = folder / "out", folder / "err"
        program = ["edgefed.cli.main", *words]
        self.process = ForkedProgram(program, clean_environment(), self._out, self._err)

    def said(self) -> list[str]:
        """Return its lines so far."""
        return self._err.read_text().splitlines()

    def wait_until_said(self, word: str) -> None:
        """Wait until a line begins with a word."""

        def said() -> bool:
            ended = self.process.poll() is not None
            begins = any(line.startswith(word) for line in self.said())
            assert begins or not ended, self.said()
            return begins

        wait_until(said, word)

    def family(self) -> list[psutil.Process]:
        """Return every process that it has started."""
        return psutil.Process(self.process.pid).children(recursive=True)  # type: ignore[no-any-return]

    def end(self, number: int) -> tuple[int, str, str]:
        """Send a signal; return its exit code, stdout and stderr."""
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE)
        return code, self._out.read_text(), self._err.read_text()


def gone(processes: list[psutil.Process]) -> bool:
    return not [each for each in processes if each.is_running() and each.status() != "zombie"]


def test_up_ends_with_sigterm_and_leaves_a_broker_that_was_there(
    fleet: SmallFleet, tmp_path: Path
) -> None:
    words = ("--broker", fleet.url, "--fleet", "second", "--state", str(tmp_path))
    program = Started(tmp_path, *words, "up", "--headless")
    program.wait_until_said("coordinator  fleet second")
    assert program.said()[0] == f"broker       already at {fleet.url}"
    started = program.family()
    assert len(started) == 1
    code, out, err = program.end(signal.SIGTERM)
    assert (code, out) == (0, "")
    assert "Traceback" not in err
    assert gone(started)
    assert fleet("status").code == 0


def demo_words(folder: Path, devices: int) -> tuple[str, ...]:
    recipe = recipe_file(folder, TINY.replace("min_devices = 2", "").replace("= 2", "= 1"))
    return ("--recipe", str(recipe), "--rounds", "100000", "--devices", str(devices))


def test_ctrl_c_ends_a_demo_in_a_round(tmp_path: Path) -> None:
    """It starts its broker as ``up`` does, which ``test_start_up`` ends at any moment."""
    words = ("--state", str(tmp_path), "demo", "--headless", *demo_words(tmp_path, 1))
    program = Started(tmp_path, *words)
    program.wait_until_said("round 2/")
    started = program.family()
    code, out, err = program.end(signal.SIGINT)
    assert (code, out) == (130, "")
    assert err.splitlines()[-1] == "edgefed: error: Interrupted.  [interrupted]"
    assert "Traceback" not in err
    assert started
    wait_until(lambda: gone(started), "the end of all processes")


def test_a_demo_whose_coordinator_dies_says_so_and_ends_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    homes: list[ForkedProcesses] = []
    start = ForkedProcesses.start_coordinator

    def noted(self: ForkedProcesses) -> None:
        homes.append(self)
        start(self)

    def kill(address: Address) -> None:
        (home,) = homes
        client = CoordinatorClient(address, FLEET)
        client.connect()
        wait_until(lambda: any(row["round"] for row in client.ask("run.list")), "a round")
        client.close()
        assert home.coordinator is not None
        os.kill(home.coordinator.pid, signal.SIGKILL)

    monkeypatch.setattr(ForkedProcesses, "start_coordinator", noted)
    ended = demo_here(tmp_path, *demo_words(tmp_path, 2), then=kill)
    assert (ended.code, ended.out) == (1, "")
    errors = [line for line in ended.err.splitlines() if line.startswith("edgefed: error: ")]
    assert len(errors) == 1
    assert "The coordinator process ended" in errors[0]
    assert errors[0].endswith("  [demo.process]")
    assert "coordinator.log" in ended.err
    (home,) = homes
    assert len(home.agents) == 2
    wait_until(lambda: not any(each.is_running() for each in home.agents.values()), "their end")

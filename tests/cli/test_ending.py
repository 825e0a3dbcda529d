"""A fleet on one machine ends with one line and leaves no process, however it is ended."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from broker.address import LOOPBACK, free_port
from tests.cli.commands import TINY, recipe_file
from tests.cli.conftest import SmallFleet
from tests.processes import edgefed, outcome
from tests.transport.listening import wait_until

pytestmark = pytest.mark.mosquitto


def read_until(process: subprocess.Popen[str], word: str) -> list[str]:
    """Return what a process has said once a line begins with a word."""
    assert process.stderr is not None
    lines: list[str] = []
    while not lines or not lines[-1].startswith(word):
        line = process.stderr.readline()
        assert line, lines
        lines.append(line.rstrip("\n"))
    return lines


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return every process that a process has started."""
    return psutil.Process(process.pid).children(recursive=True)  # type: ignore[no-any-return]


def gone(processes: list[psutil.Process]) -> bool:
    return not [each for each in processes if each.is_running() and each.status() != "zombie"]


def test_up_ends_with_sigterm_and_leaves_a_broker_that_was_there(
    fleet: SmallFleet, tmp_path: Path
) -> None:
    words = ("--broker", fleet.url, "--fleet", "second", "--state", str(tmp_path))
    process = edgefed(*words, "up", "--headless")
    said = read_until(process, "coordinator  fleet second")
    assert said[0] == f"broker       already at {fleet.url}"
    started = family(process)
    assert len(started) == 1
    process.send_signal(signal.SIGTERM)
    code, out, err = outcome(process)
    assert (code, out) == (0, "")
    assert "Traceback" not in err
    assert gone(started)
    assert fleet("status").code == 0


def test_up_ends_with_ctrl_c_and_takes_its_broker_with_it(tmp_path: Path) -> None:
    url = f"mqtt://{LOOPBACK}:{free_port()}"
    process = edgefed("--broker", url, "--state", str(tmp_path), "up", "--headless")
    said = read_until(process, "on a device")
    assert said[-1].startswith(f"on a device  edgefed-agent run --broker {url} ")
    started = family(process)
    assert len(started) == 2
    process.send_signal(signal.SIGINT)
    code, out, err = outcome(process)
    assert (code, out) == (130, "")
    assert err.splitlines()[-1] == "edgefed: error: Interrupted.  [interrupted]"
    assert "Traceback" not in err
    assert gone(started)


def demo(folder: Path, *words: str) -> subprocess.Popen[str]:
    recipe = recipe_file(folder, TINY.replace("min_devices = 2", "").replace("= 2", "= 1"))
    common = ("--recipe", str(recipe), "--headless", "--rounds", "100000", "--devices", "2")
    return edgefed("--state", str(folder), "demo", *common, *words)


@pytest.mark.parametrize("moment", ["devices", "round 2/"])
def test_ctrl_c_ends_a_demo_in_every_phase(tmp_path: Path, moment: str) -> None:
    """It starts its broker as ``up`` does, which ``test_start_up`` ends at any moment."""
    process = demo(tmp_path)
    read_until(process, moment)
    started = family(process)
    process.send_signal(signal.SIGINT)
    code, out, err = outcome(process)
    assert (code, out) == (130, "")
    assert err.splitlines()[-1] == "edgefed: error: Interrupted.  [interrupted]"
    assert "Traceback" not in err
    assert started
    wait_until(lambda: gone(started), "the end of all processes")


@pytest.mark.slow
def test_a_demo_whose_coordinator_dies_says_so_and_ends_the_rest(tmp_path: Path) -> None:
    process = demo(tmp_path)
    read_until(process, "round 1/")
    started = family(process)
    coordinator = next(each for each in started if "coordinator" in each.cmdline())
    os.kill(coordinator.pid, signal.SIGKILL)
    code, out, err = outcome(process)
    assert (code, out) == (1, "")
    errors = [line for line in err.splitlines() if line.startswith("edgefed: error: ")]
    assert len(errors) == 1
    assert "The coordinator process ended" in errors[0]
    assert errors[0].endswith("  [demo.process]")
    assert "coordinator.log" in err
    wait_until(lambda: gone(started), "the end of all processes")

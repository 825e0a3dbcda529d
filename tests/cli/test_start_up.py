"""SIGINT and SIGTERM at every moment of a service's start: one line, its exit code, no orphan."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from broker.address import LOOPBACK, free_port
from broker.mosquitto import MosquittoBroker
from tests.agent.agent_harness import write_data
from tests.processes import PATIENCE, clean_environment, outcome
from tests.transport.listening import wait_until

pytestmark = [pytest.mark.mosquitto, pytest.mark.slow]

MOMENTS = [0.4 * step for step in range(8)]
"""Seconds after the start at which a signal is sent: until a service is at work, and after.

Services start in the same way, and one handler takes both signals, so that each service takes its
turn with one of the signals, one of the early moments and one of the late ones.
"""
PROGRAMS = Path(sys.executable).parent
MARK = "TEST_START_UP"
SWALLOWED = "Failed checking if argv[0] is an import path entry"
"""What Python prints when a SIGINT meets this check of its own, after which it goes on."""

SERVICES = {
    "up": signal.SIGINT,
    "coordinator": signal.SIGTERM,
    "agent": signal.SIGINT,
    "broker up": signal.SIGTERM,
}
"""The one that takes longest to start is first: it gets the latest moments."""


def command(service: str, url: str, folder: Path) -> list[str | Path]:
    if service == "agent":
        data = write_data(folder / "data.npz")
        own = ("run", "--broker", url, "--name", "a", "--data", f"npz:{data}")
        return [PROGRAMS / "edgefed-agent", *own]
    headless = ["--headless"] if service == "up" else []
    return [PROGRAMS / "edgefed", "--broker", url, *service.split(), *headless]


def start(words: Sequence[str | Path], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(environment),
    )


def left_over(mark: str) -> list[psutil.Process]:
    """Return the processes that were started with a mark in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            marked = process.environ().get(MARK) == mark
        except (psutil.Error, OSError):
            continue
        if marked and process.status() != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


@pytest.mark.parametrize(("place", "service"), list(enumerate(SERVICES)))
def test_a_service_can_be_ended_at_any_moment_of_its_start(
    place: int, service: str, tmp_path: Path, mosquitto: MosquittoBroker
) -> None:
    number = SERVICES[service]
    mark = secrets.token_hex(8)
    state = {"EDGEFED_STATE": str(tmp_path / "state"), MARK: mark}
    environment = {**clean_environment(), **state}
    for moment in (MOMENTS[place], MOMENTS[-1 - place]):
        url = str(mosquitto.address)
        if service in ("broker up", "up"):
            url = f"mqtt://{LOOPBACK}:{free_port()}"
        process = start(command(service, url, tmp_path), environment)
        time.sleep(moment)
        process.send_signal(number)
        check(number, *ended(process, number))
        wait_until(lambda: not left_over(mark), "the end of all processes")


def ended(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str]:
    """Return the exit code and stderr; send again a signal that Python's own start dropped."""
    again = False
    try:
        process.wait(PATIENCE / 5)
    except subprocess.TimeoutExpired:
        again = True
        process.send_signal(number)
    code, _, err = outcome(process)
    if again:
        assert SWALLOWED in err
        err = err[err.rindex("KeyboardInterrupt\n") + len("KeyboardInterrupt\n") :]
    return code, err


def check(number: signal.Signals, code: int, err: str) -> None:
    """Check how a service ended, but for what Python says before a line of ours has run."""
    if code == -number or (code == 1 and "KeyboardInterrupt" in err and "in begin" not in err):
        return
    errors = [line for line in err.splitlines() if line.startswith("edgefed: error: ")]
    assert "Traceback" not in err
    assert "Exception ignored" not in err
    if number == signal.SIGINT:
        assert (code, len(errors)) == (130, 1), err
        assert errors[0].endswith("  [interrupted]")
    else:
        assert (code, errors) == (0, []), err

"""A device that is removed in mid-round: the round goes on without it, and it is out at once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.broker.test_secured_fleet import write_data
from tests.enrolment.hub import Hub, running_hub

pytestmark = [pytest.mark.mosquitto, pytest.mark.slow]

PATIENCE = 300.0
RECIPE = {
    "model": {"name": "mlp"},
    "data": {"name": "none"},
    "rounds": {"count": 2, "min_devices": 1, "deadline": 3600},
    "evaluation": {"on": "devices"},
}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with running_hub(tmp_path) as made:
        yield made


def wait(until: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not until():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.2)


def test_a_device_removed_in_mid_round(hub: Hub, tmp_path: Path) -> None:
    agents = {}
    for seed, name in enumerate(("cam-1", "cam-2")):
        hub.enroll(name)
        agents[name] = hub.fork_agent(name, write_data(tmp_path / f"{name}.npz", seed))
    gone, log = agents["cam-2"]
    try:
        wait(lambda: len(hub.ask("snapshot")["snapshot"]["devices"]) == 2, "both devices")
        os.kill(gone.pid, signal.SIGSTOP)  # it is asked, and does not answer
        run = hub.order("run.start", recipe=RECIPE)["run"]
        wait(lambda: hub.ask("run.show", run=run)["status"] == "running", "the run's begin")
        time.sleep(2.0)
        record = hub.ask("run.show", run=run)
        assert (record["status"], record["round"]) == ("running", 1)  # it waits for cam-2
        assert hub.order("member.remove", user="cam-2")["name"] == "cam-2"
        wait(lambda: hub.ask("run.show", run=run)["status"] == "finished", "the run")
        assert hub.ask("run.show", run=run)["round"] == 2
        devices = [each["device"] for each in hub.ask("snapshot")["snapshot"]["devices"]]
        assert devices == ["cam-1"]
        os.kill(gone.pid, signal.SIGCONT)
        assert gone.wait() == 4
        assert "[device.removed]" in log.read_text()
        assert hub.members()["cam-2"]["state"] == "revoked"
    finally:
        for process, _ in agents.values():
            process.kill()
            process.wait()

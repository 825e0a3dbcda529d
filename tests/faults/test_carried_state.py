"""A recurrent state carried over a real broker: the simulator's bits, through a SIGKILL."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefed.clock import SystemClock
from edgefed.simulator.run import Simulation
from tests.faults.fleet_processes import FLEET, fleet
from tests.faults.traffic_recorder import Spy
from tests.simulator.test_carried_state import recipe

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]


def test_a_device_killed_in_the_middle_of_a_text_begins_it_again(tmp_path: Path) -> None:
    rounds = {"count": 2, "quorum": 1.0, "min_devices": 3, "lost_grace": "deadline"}
    plan = recipe(tmp_path, epochs=2)
    plan = plan.model_validate({**plan.model_dump(mode="json"), "rounds": rounds})
    with fleet(tmp_path / "home", plan) as home:
        spy = Spy(home.address, FLEET)
        try:
            run = home.begin()
            spy.at(2, "training", "device-01", lambda: home.kill("device-01"))
            home.start("device-01")
            record = home.finish(run)
        finally:
            spy.close()
    assert record["status"] == "finished", record["reason"]
    virtual = Simulation(plan, tmp_path / "sim", SystemClock()).run().record
    assert record["weights_digest"] == virtual.weights_digest

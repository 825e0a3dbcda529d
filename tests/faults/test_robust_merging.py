"""Robust merges and quarantine over MQTT: the bits of a simulation, after SIGKILL too."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefed.clock import SystemClock
from edgefed.config.recipe import Recipe
from edgefed.errors import EdgeFedError
from edgefed.simulator.run import Simulation
from tests.faults.fleet_processes import FLEET, FleetProcesses, fleet, wait_until
from tests.faults.traffic_recorder import Spy

pytestmark = [pytest.mark.mosquitto, pytest.mark.slow]

VICTIM = "device-01"
RECIPE = Recipe.model_validate(
    {
        "name": "robust",
        "seed": 7,
        "model": {"name": "mlp", "hidden": [1000, 500]},
        "data": {"classes_per_device": 4, "limit": 480},
        "training": {"epochs": 2, "batch_size": 8, "learning_rate": 0.05},
        "rounds": {
            "count": 3,
            "deadline": 300,
            "lost_grace": "deadline",
            "quorum": 1.0,
            "min_devices": 3,
        },
        "wire": {"downlink": "bf16", "uplink": "int8"},
        "simulation": {"devices": 3},
        "checks": {"norm_factor": 50.0, "samples_factor": 50.0, "announced_factor": 1.0},
        "merging": {"rule": "geometric_median"},
    }
)


def test_kills_of_all_parts_change_no_bit_of_a_robust_merge(tmp_path: Path) -> None:
    """The coordinator holds the first replies of a round when it is killed."""
    killed = []
    with fleet(tmp_path / "home", RECIPE) as home:
        spy = Spy(home.address, FLEET)
        try:
            run = home.begin(RECIPE)
            for number, victim in enumerate(("coordinator", VICTIM, "broker"), start=1):
                spy.at(number, "upload", VICTIM, lambda who=victim: home.kill(who))  # type: ignore[misc]
                killed.append(victim)
                home.start(victim)
            record = home.finish(run)
        finally:
            spy.close()
    assert killed == ["coordinator", VICTIM, "broker"]
    assert (record["status"], record["round"]) == ("finished", 3)
    virtual = Simulation(RECIPE, tmp_path / "sim", SystemClock()).run().record
    assert record["weights_digest"] == virtual.weights_digest


def standing(home: FleetProcesses, device: str) -> str:
    return str(home.devices()[device]["standing"])


def test_a_quarantine_by_order_outlives_the_coordinator_until_a_release(tmp_path: Path) -> None:
    few = RECIPE.rounds.model_copy(update={"count": 1, "quorum": 0.5, "min_devices": 2})
    small = RECIPE.model.model_copy(update={"hidden": [8]})
    plan = RECIPE.model_copy(update={"rounds": few, "model": small})
    with fleet(tmp_path / "home", plan) as home:
        home.wait_for_devices(3)
        assert home.order_device("quarantine", VICTIM) == {"quarantined": VICTIM}
        assert standing(home, VICTIM) == "quarantined"
        with pytest.raises(EdgeFedError) as caught:
            home.order_device("quarantine", VICTIM)
        assert caught.value.code == "device.quarantined"
        with pytest.raises(EdgeFedError) as caught:
            home.order_device("quarantine", "device-77")
        assert caught.value.code == "device.unknown"
        home.kill("coordinator")
        home.start("coordinator")
        home.wait_for_devices(3)
        assert standing(home, VICTIM) == "quarantined"
        first = home.begin(plan)
        home.finish(first)
        asked = {each["device"] for each in home.events(first, "reply", question="fit")}
        assert asked == {"device-00", "device-02"}
        home.kill(VICTIM)
        home.start(VICTIM)
        wait_until(lambda: home.devices()[VICTIM]["state"] != "lost", "its return", home.logs)
        assert standing(home, VICTIM) == "quarantined"
        assert home.order_device("release", VICTIM) == {"released": VICTIM}
        assert standing(home, VICTIM) == "suspect"
        second = home.begin(plan)
        home.finish(second)
        asked = {each["device"] for each in home.events(second, "reply", question="fit")}
        assert asked == {"device-00", VICTIM, "device-02"}

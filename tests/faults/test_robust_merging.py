"""An order to quarantine a device holds over SIGKILL of the coordinator and of the device."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.errors import EdgeFedError
from tests.faults.fleet_processes import FleetProcesses, fleet, wait_until

pytestmark = [pytest.mark.mosquitto, pytest.mark.slow]

VICTIM = "device-01"
RECIPE = Recipe.model_validate(
    {
        "name": "robust",
        "seed": 7,
        "model": {"name": "mlp", "hidden": [8]},
        "data": {"classes_per_device": 4, "limit": 480},
        "training": {"epochs": 2, "batch_size": 8, "learning_rate": 0.05},
        "rounds": {"count": 1, "deadline": 300, "quorum": 0.5, "min_devices": 2},
        "wire": {"downlink": "bf16", "uplink": "int8"},
        "simulation": {"devices": 3},
        "checks": {"norm_factor": 50.0, "samples_factor": 50.0, "announced_factor": 1.0},
        "merging": {"rule": "geometric_median"},
    }
)


def standing(home: FleetProcesses, device: str) -> str:
    return str(home.devices()[device]["standing"])


def test_a_quarantine_by_order_outlives_the_coordinator_until_a_release(tmp_path: Path) -> None:
    with fleet(tmp_path / "home", RECIPE) as home:
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
        first = home.begin()
        home.finish(first)
        asked = {each["device"] for each in home.events(first, "reply", question="fit")}
        assert asked == {"device-00", "device-02"}
        home.kill(VICTIM)
        home.start(VICTIM)
        wait_until(lambda: home.devices()[VICTIM]["state"] != "lost", "its return", home.logs)
        assert standing(home, VICTIM) == "quarantined"
        assert home.order_device("release", VICTIM) == {"released": VICTIM}
        assert standing(home, VICTIM) == "suspect"
        second = home.begin()
        home.finish(second)
        asked = {each["device"] for each in home.events(second, "reply", question="fit")}
        assert asked == {"device-00", VICTIM, "device-02"}

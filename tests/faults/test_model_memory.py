"""A model too large for a machine's ``memory`` in a real fleet: who refuses it, and how."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefed.config.recipes.recipe import Recipe
from tests.faults.fleet_processes import fleet

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

LITTLE = {"memory": "20000"}
RECIPE = Recipe.model_validate(
    {
        "name": "memory",
        "seed": 3,
        "model": {"name": "mlp", "hidden": [16]},
        "data": {"name": "digits", "limit": 90},
        "training": {"epochs": 1},
        "rounds": {"count": 1, "min_devices": 2, "quorum": 1.0},
        "simulation": {"devices": 2},
    }
)


def test_who_lacks_the_memory_refuses_and_says_what_it_lacks(tmp_path: Path) -> None:
    settings = {"coordinator": LITTLE}
    with fleet(tmp_path / "home", RECIPE, settings=settings) as home:
        run = home.begin()
        record = home.finish(run)
        assert (record["status"], record["error"]) == ("failed", "model.too_large"), record
        assert "19.5 KiB (20000 bytes) are available here" in record["reason"]
        assert home.events(run, "exchange") == []

        settings["device-00"] = settings.pop("coordinator")
        home.restart("coordinator")
        home.restart("device-00")
        home.wait_for_devices(2)
        run = home.begin()
        assert home.finish(run)["status"] == "failed"
        told, *_ = home.events(run, "reply", device="device-00", outcome="refused")
        assert "20000 bytes" in told["reason"]

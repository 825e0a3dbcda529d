"""A model too large for a machine's ``memory`` in a real fleet: who refuses it, and how."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from edgefed.config.recipes.recipe import Recipe
from tests.faults.fleet_processes import FleetProcesses

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


def ended(folder: Path, settings: Mapping[str, Mapping[str, str]]) -> tuple[dict[str, Any], Any]:
    """Run it and return the run's row, and its replies and questions."""
    fleet = FleetProcesses(folder, RECIPE, settings=settings)
    try:
        run = fleet.begin()
        record = fleet.finish(run)
        return record, {kind: fleet.events(run, kind) for kind in ("exchange", "reply", "device")}
    finally:
        fleet.close()


def test_the_coordinator_refuses_it_and_asks_no_device(tmp_path: Path) -> None:
    record, events = ended(tmp_path, {"coordinator": LITTLE})
    assert (record["status"], record["error"]) == ("failed", "model.too_large"), record
    assert "19.5 KiB (20000 bytes) are available here" in record["reason"]
    assert events["exchange"] == []


def test_a_device_refuses_it_and_says_what_it_lacks(tmp_path: Path) -> None:
    record, events = ended(tmp_path, {"device-00": LITTLE})
    assert record["status"] == "failed", record
    told = [str(event) for event in events["reply"] if event.get("device") == "device-00"]
    assert any("refused" in each and "20000 bytes" in each for each in told), events

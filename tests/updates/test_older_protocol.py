"""A coordinator that was updated first: devices of the protocol version before go on training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.report.run_data import EVENTS
from edgefed.version import OLDEST_PROTOCOL, PROTOCOL
from tests.faults.fleet_processes import fleet
from tests.older_agent import VARIABLE

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]


def test_devices_of_the_version_before_train_with_those_of_this_one(tmp_path: Path) -> None:
    assert OLDEST_PROTOCOL == PROTOCOL - 1
    recipe = Recipe.model_validate(
        {
            "model": {"name": "mlp", "hidden": [4]},
            "rounds": {"count": 2, "min_devices": 2},
            "simulation": {"devices": 2},
            "data": {"limit": 100},
        }
    )
    with fleet(
        tmp_path, recipe, agent="tests.older_agent", variables={"device-00": {VARIABLE: "1"}}
    ) as home:
        home.wait_for_devices(2)
        mixed = home.finish(home.begin())
        text = (Path(mixed["folder"]) / EVENTS).read_text()
        replies = [each for each in map(json.loads, text.splitlines()) if each["kind"] == "reply"]
        fits = [each for each in replies if each["question"] == "fit"]
        assert [each["outcome"] for each in fits] == ["accepted"] * 4
        # Replies tell the bytes of downloads since version 7
        assert {each["device"] for each in fits if each.get("download_bytes")} == {"device-01"}
        log = (tmp_path / "device-00.log").read_text()
        assert "refused" not in log

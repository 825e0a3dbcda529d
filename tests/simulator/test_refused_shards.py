"""A simulation whose devices lack what training or tests need is refused before it begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.errors import DataError, UsageError
from edgefed.process.clock import SystemClock
from edgefed.simulator.run import Simulation

TURNED = {"name": "fedmoe", "condition": "rotation", "condition_values": 8}


def begin(folder: Path, **sections: Any) -> None:
    values: dict[str, Any] = {"data": {"limit": 100}, "simulation": {"devices": 2, "workers": 1}}
    values["rounds"] = {"count": 1}
    recipe = Recipe.model_validate({**values, **sections})
    result = Simulation(recipe, folder, SystemClock()).run()
    assert result.record.status == "finished", result.record.reason


def test_a_column_that_no_device_has(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="needs the column 'rotation'") as caught:
        begin(tmp_path / "without", algorithm=TURNED)
    assert caught.value.code == "data.column"
    assert not (tmp_path / "without" / "runs").exists()
    turned = {"limit": 100, "transform": "rotation", "angles": 8}
    begin(tmp_path / "with", algorithm=TURNED, data=turned)


def test_fewer_devices_than_the_run_begins_with(tmp_path: Path) -> None:
    few = {"devices": 3, "workers": 1}
    with pytest.raises(UsageError, match=r"rounds\.min_devices is 8, and 3 of 3") as caught:
        begin(tmp_path / "few", simulation=few, rounds={"min_devices": 8, "count": 1})
    assert (caught.value.code, caught.value.exit_code) == ("simulation.devices", 2)
    assert not (tmp_path / "few" / "runs").exists()


def test_fewer_devices_than_the_merge_needs(tmp_path: Path) -> None:
    few = {"devices": 4, "workers": 1}
    with pytest.raises(UsageError, match=r"2f \+ 3 = 5 answers a round\. 4 of 5") as caught:
        begin(tmp_path / "few", simulation=few, merging={"rule": "krum"}, rounds={"count": 1})
    assert (caught.value.code, caught.value.exit_code) == ("simulation.devices", 2)
    assert not (tmp_path / "few" / "runs").exists()


def test_tests_on_devices_that_hold_out_nothing(tmp_path: Path) -> None:
    held = {"devices": 2, "workers": 1, "holdout": 0.0}
    with pytest.raises(UsageError, match="no device holds out samples") as caught:
        begin(tmp_path / "none", algorithm={"name": "fedmoe"}, simulation=held)
    assert caught.value.code == "evaluation.holdout"
    begin(tmp_path / "unset", algorithm={"name": "fedmoe"})
    here = {"on": "coordinator"}
    begin(tmp_path / "here", algorithm={"name": "fedmoe"}, simulation=held, evaluation=here)

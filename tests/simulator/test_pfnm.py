"""PFNM in whole runs: after any cut, and as a model file of the width that was found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors import safe_open

from edgefed.algorithms.composed.registry import make
from tests.coordinator.exchanges.test_resume import Fuse, PowerCut, cut_in_time
from tests.run_fixture import COARSE, SHAPE, World, recipe, shards


def world(folder: Path) -> World:
    """Return a run in which each device misses a round now and then."""
    plan = recipe(
        algorithm={"name": "pfnm", "initial": "independent", "gamma": 1000.0},
        model={"name": "mlp", "hidden": [4, 3]},
        rounds={"count": 3, "cohort": 3},
        evaluation={"on": "both"},
        wire=COARSE,
    )
    return World(folder, plan, shards((5, 9, 6, 4), tested=5))


@pytest.mark.parametrize("passes", [45, 95])
def test_a_run_that_is_cut_ends_in_the_same_bits(passes: int, tmp_path: Path) -> None:
    straight, cut = world(tmp_path / "straight"), world(tmp_path / "cut")
    assert straight.engine().run().status == "finished"
    with pytest.raises(PowerCut):
        cut_in_time(cut, Fuse(passes))
    assert cut.engine().run().status == "finished"
    assert cut.record.weights_digest == straight.record.weights_digest
    scores = [[row["device_loss"] for row in each.rows] for each in (cut, straight)]
    assert scores[0] == scores[1]
    straight.close()
    cut.close()


def test_the_model_file_has_the_width_that_was_found(tmp_path: Path) -> None:
    here = world(tmp_path)
    record = here.engine().run()
    assert record.status == "finished", record.reason
    found = here.stores[0].checkpoint(here.run)
    assert found is not None
    algorithm = make(here.recipe)
    (table,) = algorithm.view(found.state)
    assert [row.cells[0] for row in table.rows] == [4, 3]
    widths = [row.cells[1] for row in table.rows]
    assert widths > [4, 3], "or nothing grew"
    assert [row.cells[-1] for row in table.rows] == [3, 3]
    assert table.series["devices"] == 3
    growth = algorithm.round_metrics(found.state)["growth"]
    with safe_open(here.stores[0].run_folder(here.run) / "model.safetensors", "np") as file:
        assert json.loads(file.metadata()["model"])["hidden"] == widths
        assert file.get_slice("fc1.weight").get_shape() == [widths[0], *SHAPE]
        sizes = sum(file.get_tensor(name).size for name in file.keys())  # noqa: SIM118
    assert growth == sizes / (8 * 4 + 4 + 4 * 3 + 3 + 3 * 3 + 3)
    told = [each["text"] for each in here.seen("note")]
    assert any(text.startswith("units of the global network: fc1 ") for text in told), told
    here.close()

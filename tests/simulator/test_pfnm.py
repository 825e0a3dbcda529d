"""PFNM in whole runs: the model file has the width that was found."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors import safe_open

from edgefed.algorithms.composed.registry import make
from tests.run_fixture import COARSE, SHAPE, World, recipe, shards


def test_the_model_file_has_the_width_that_was_found(tmp_path: Path) -> None:
    plan = recipe(
        algorithm={"name": "pfnm", "initial": "independent", "gamma": 1000.0},
        model={"name": "mlp", "hidden": [4, 3]},
        rounds={"count": 3, "cohort": 3},
        evaluation={"on": "both"},
        wire=COARSE,
    )
    here = World(tmp_path, plan, shards((5, 9, 6, 4), tested=5))
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

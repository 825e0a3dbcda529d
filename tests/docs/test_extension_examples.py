"""Each example of docs/extensions.md, installed as the package that the page describes."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.composed.registry import PLUGINS
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.selection.registry import SELECTOR_PLUGINS
from edgefed.config.fleet.tracker_names import TRACKER_PLUGINS
from edgefed.data.devices.sources import load_device
from edgefed.data.partitioners.registry import PARTITION_PLUGINS
from edgefed.data.sets.datasets import DATASET_PLUGINS
from edgefed.learn.modeling.model_building import NETWORK_PLUGINS
from tests.docs.pages import ROOT, blocks
from tests.plugin_package import importable, write_package
from tests.programs.forked_programs import run_module

tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

EXAMPLES = {
    block.example: block.text for block in blocks(ROOT / "docs" / "extensions.md") if block.example
}
CODE = ("algorithm", "view", "model", "dataset", "partition", "selector", "tracker")
PROJECT = tomllib.loads(EXAMPLES["entry-points"])["project"]
NAMES = {
    PLUGINS.group: "half-step",
    NETWORK_PLUGINS.group: "tanh",
    DATASET_PLUGINS.group: "csv",
    PARTITION_PLUGINS.group: "halving",
    SELECTOR_PLUGINS.group: "patient",
    TRACKER_PLUGINS.group: "best",
}


@pytest.fixture(scope="module", autouse=True)
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Install the page's package, with a file of trees beside a recipe."""
    site = tmp_path_factory.mktemp("orchard")
    (site / "orchard.py").write_text("\n\n".join(EXAMPLES[name] for name in CODE))
    for group, points in PROJECT["entry-points"].items():
        write_package(site, f"{PROJECT['name']}_{group.rpartition('.')[2]}", points, group)
    rng = np.random.default_rng(3)
    rows = rng.random((80, 4))
    rows[:, -1] = rows[:, 0] > 0.5
    np.savetxt(site / "trees.csv", rows, delimiter=",")
    (site / "recipe.toml").write_text(EXAMPLES["recipe"])
    with pytest.MonkeyPatch.context() as patch, importable(site, patch):
        yield site
    sys.modules.pop("orchard", None)


def told(*words: str, environment: Mapping[str, str] | None = None) -> Any:
    code, out, err = run_module("edgefed.cli.main", *words, environment=environment)
    assert code == 0, err
    return json.loads(out)


def test_every_block_is_run_and_every_kind_has_an_example() -> None:
    assert {*CODE, "entry-points", "recipe", "contract"} == EXAMPLES.keys()
    assert {group: next(iter(points)) for group, points in PROJECT["entry-points"].items()} == NAMES


def test_the_view_is_a_table_of_the_state() -> None:
    kind = importlib.import_module("orchard").Shown
    state = State(1, {"weights": {"out": np.array([3, 4], np.float32)}})
    (table,) = kind.view(None, state)
    assert (table.texts(), table.series) == ([("out", "5.000")], {"largest": 5.0})


def test_the_recipe_runs_with_all_plug_ins(package: Path) -> None:
    recipe = str(package / "recipe.toml")
    assert told("config", "check", recipe, "--json")["problems"] == []
    state = ("--state", str(package / "state"), "--quiet")
    tracked = {"EDGEFED_TRACKERS": "best"}
    words = ("sim", "run", recipe, "--json", "--set", "simulation.workers=2")
    found = told(*state, *words, environment=tracked)
    again = told(*state, "sim", "run", recipe, "--json", "--set", "simulation.workers=1")
    assert found["weights_digest"] == again["weights_digest"]
    (line,) = (package / "state/trackers/best/best.txt").read_text().splitlines()
    assert line == f"{found['run']}: {found['accuracy']:.3f}"
    other = told(*state, "sim", "run", recipe, "--json", "--set", "algorithm.step=1")
    assert other["weights_digest"] != found["weights_digest"]
    shares = told("data", "show", recipe, "--json")
    assert [each["train"] for each in shares["devices"]] == [37, 18, 9]


def test_their_keys_are_validated_with_their_lines(package: Path) -> None:
    recipe = package / "wrong.toml"
    text = EXAMPLES["recipe"].replace("width = 8", "width = 0").replace("ratio = 0.5", "ratio = 2")
    text = text.replace("patience = 3", "patience = 0")
    recipe.write_text(text.replace("step = 0.5", "stride = 0.5"))
    code, out, _ = run_module("edgefed.cli.main", "config", "check", str(recipe), "--json")
    assert code == 8
    found = {each["key"]: each["line"] for each in json.loads(out)["problems"]}
    lines = text.splitlines()
    assert found == {
        "model.width": lines.index("width = 0") + 1,
        "data.ratio": lines.index("ratio = 2") + 1,
        "algorithm.stride": lines.index("step = 0.5") + 1,
        "selection.patience": lines.index("patience = 0") + 1,
    }


def test_the_schema_describes_their_keys() -> None:
    tables = told("config", "schema")["$defs"]
    wanted = [
        ("ModelSection", "name", "tanh", "width"),
        ("ModelSection", "name", "mlp", "hidden"),
        ("DataSection", "name", "csv", "test_share"),
        ("DataSection", "partition", "halving", "ratio"),
        ("AlgorithmSection", "name", "half-step", "step"),
        ("SelectionSection", "name", "patient", "patience"),
        ("SelectionSection", "name", "oort", "exploration"),
    ]
    for table, key, name, own in wanted:
        (case,) = (
            each
            for each in tables[table]["allOf"]
            if each["if"]["properties"].get(key, {}).get("const") == name
        )
        assert case["then"]["properties"][own]["description"]
        assert case["if"]["required"] == [key]


def test_a_device_reads_its_own_file(package: Path) -> None:
    found = load_device(f"csv:{package / 'trees.csv'}", 0.25)
    assert (len(found.train), len(found.test), found.classes) == (60, 20, 2)
    assert found.shape == (3,)


def test_the_contract_tests_pass(tmp_path: Path) -> None:
    made: dict[str, Any] = dict(vars(importlib.import_module("orchard")))
    exec(EXAMPLES["contract"], made)
    tests = [name for name in made if name.startswith("test_")]
    assert len(tests) == 6
    for name in tests:
        made[name](*([tmp_path] if name == "test_csv" else []))

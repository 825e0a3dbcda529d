"""A run's record, model file, page and output name the versions of its code."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from edgefed.algorithms.averaging.fedavg import FedAvg
from edgefed.algorithms.composed.recipe_versions import recipe_versions
from edgefed.algorithms.composed.registry import PLUGINS
from edgefed.cli.printed.run_text import run_text
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.process.run_views import whole_run
from edgefed.coordinator.storage.run_store import Store
from edgefed.errors import DataError
from edgefed.files.code_versions import UNKNOWN_VERSIONS, CodeSource, CodeVersions
from edgefed.learn.modeling.model_description import read_description
from edgefed.learn.modeling.model_file_reader import opened_model_file
from edgefed.report.page import report
from edgefed.report.run_data import run_data_of_folder, run_data_of_response
from edgefed.simulator.run import Simulation
from edgefed.version import VERSION
from tests.cli.commands import edgefed
from tests.plugin_package import importable, write_package
from tests.run_fixture import Ticking

pytest.importorskip("sklearn", reason="the digits are not installed")

PLUGIN = """
from edgefed.extension import FedAvg

class Versioned(FedAvg):
    name = "versioned"
    summary = "FedAvg by another name"
    paper = "none"
"""


def recipe(**sections: Any) -> Recipe:
    values = {
        "data": {"limit": 60},
        "rounds": {"count": 1},
        "model": {"name": "mlp", "hidden": [4]},
    }
    simulation = {"devices": 2, "workers": 1}
    return Recipe.model_validate({**values, "simulation": simulation, **sections})


def test_versions_are_named_wherever_a_run_is_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, state = tmp_path / "site", tmp_path / "state" / "simulations"
    write_package(site, "versioned-plugin", {"versioned": "a_versioned_plugin:Versioned"})
    (site / "a_versioned_plugin.py").write_text(PLUGIN)
    loss = {"loss": "tests.learn.own_functions:focal"}
    chosen = recipe(algorithm={"name": "versioned"}, training=loss)
    with importable(site, monkeypatch):
        ended = Simulation(chosen, state, Ticking()).run()
        versions = ended.record.versions
        assert versions == recipe_versions(chosen, readable=True)
    assert (versions.edgefed, versions.torch) == (VERSION, str(torch.__version__))
    (package,), (module,) = versions.packages, versions.modules
    assert (package.name, package.version) == ("versioned-plugin", "1.0")
    assert (module.name, module.version) == ("tests.learn.own_functions", "")
    assert len(package.digest) == len(module.digest) == 32
    line = (
        f"EdgeFed {VERSION} with torch {torch.__version__}, versioned-plugin 1.0"
        f" ({package.digest[:12]}), tests.learn.own_functions ({module.digest[:12]})"
    )
    with closing(Store(state, durable=False)) as store:
        assert store.run(ended.record.run).versions == versions
        whole = json.loads(json.dumps(whole_run(store, ended.record.run)))
    assert line in run_text(whole)
    assert whole["versions"]["packages"] == [
        {"name": package.name, "version": "1.0", "digest": package.digest}
    ]
    with opened_model_file(ended.folder / "model.safetensors") as file:
        assert file.description.versions == versions
    of_folder = run_data_of_folder(ended.folder)
    assert line in report(of_folder)
    assert line in report(run_data_of_response(whole, of_folder.summary))
    shown = edgefed("run", "show", "--local", "--json", state=tmp_path / "state").json
    assert shown["versions"] == whole["versions"]


FAILING = """
from edgefed.extension import FedAvg

class Failing(FedAvg):
    name = "failing"
    summary = "fails"
    paper = "none"

    def {method}(self, *given):
        raise ZeroDivisionError("one by none")
"""


@pytest.mark.parametrize("method", ["merge", "models"])
def test_a_failure_of_a_plug_in_is_the_record_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Whether it fails in a round, or when the model is saved at the end."""
    site, module = tmp_path / "site", f"a_plugin_failing_in_{method}"
    write_package(site, "failing-plugin", {"failing": f"{module}:Failing"})
    (site / f"{module}.py").write_text(FAILING.replace("{method}", method))
    with importable(site, monkeypatch):
        chosen = recipe(algorithm={"name": "failing"}, evaluation={"on": "devices"})
        record = Simulation(chosen, tmp_path / "state", Ticking()).run().record
    assert (record.status, record.error) == ("failed", "algorithm.plugin")
    assert f"of package failing-plugin failed in {method}: ZeroDivision" in record.reason
    assert record.hint


def test_runs_and_files_of_earlier_releases_open_with_unknown_versions(tmp_path: Path) -> None:
    ended = Simulation(recipe(), tmp_path, Ticking()).run()
    run = ended.record.run
    with closing(Store(tmp_path, durable=False)) as store:
        ((_, text),) = store._db.rows("runs")
        known = json.loads(str(text))
        assert known.pop("versions")["edgefed"] == VERSION
        with store._db.transaction():
            store._db.put("runs", run, json.dumps(known))
    with closing(Store(tmp_path, durable=False)) as store:
        assert store.run(run) == replace(ended.record, versions=UNKNOWN_VERSIONS)
        assert "versions " not in run_text(whole_run(store, run))
    with opened_model_file(ended.folder / "model.safetensors") as file:
        metadata = file.description.metadata()
    assert json.loads(metadata.pop("versions"))["packages"] == []
    assert read_description(metadata, Path("old")).versions == UNKNOWN_VERSIONS
    for wrong in ("{", "[1]", '{"packages": 3}'):
        with pytest.raises(DataError):
            read_description({**metadata, "versions": wrong}, Path("wrong"))


def test_a_network_of_torchvision_is_no_code_of_a_user() -> None:
    assert recipe_versions(recipe(model={"name": "torchvision:resnet18"})).sources == ()
    (own,) = recipe_versions(recipe(model={"name": "tests.api.own_model:make"})).sources
    assert own.name == "tests.api.own_model"


def test_a_run_of_code_without_sources_says_so(tmp_path: Path) -> None:
    typed = type("Typed", (FedAvg,), {"__module__": "a_module_that_is_not_there"})
    typed.name, typed.summary, typed.paper = "typed", "FedAvg", "none"  # type: ignore[attr-defined]
    with PLUGINS.added("typed", typed):
        record = Simulation(recipe(algorithm={"name": "typed"}), tmp_path, Ticking()).run().record
    assert record.versions.modules == (CodeSource("a_module_that_is_not_there"),)
    assert str(record.versions).endswith("a_module_that_is_not_there (sources unknown)")
    assert str(CodeVersions()) == ""

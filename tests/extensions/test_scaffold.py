"""SCAFFOLD as a package of its own: installed by pip, its table, and its bits over MQTT."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from textual.pilot import Pilot

from edgefed.algorithms.composed.registry import find
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.process.last_run import with_last_run
from edgefed.coordinator.storage.run_store import Store
from edgefed.events.base.log import Log
from edgefed.events.base.model import Event
from edgefed.events.base.snapshot import Snapshot
from edgefed.events.history.playback import Playback
from edgefed.events.history.recording import Recording
from edgefed.events.history.summary import summarise
from edgefed.events.state.fold import SnapshotBuilder
from edgefed.process.clock import SystemClock
from edgefed.report.page import report
from edgefed.report.run_data import run_data_of_folder
from edgefed.simulator.run import Simulation
from edgefed.testing.algorithms import check_algorithm
from tests.extensions.installed_package import install
from tests.faults.fleet_processes import FLEET, fleet
from tests.faults.traffic_recorder import Spy
from tests.plugin_package import ROOT, importable
from tests.programs.forked_programs import run_module
from tests.tui.driving import drive, heading, words
from tests.tui.samples import dashboard, fine

SOURCE = Path(__file__).parents[1] / "example_scaffold"


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of packages that it is installed in."""
    site = install(SOURCE, tmp_path_factory.mktemp("scaffold"))
    with pytest.MonkeyPatch.context() as patch, importable(site, patch):
        yield site
    for name in [name for name in sys.modules if name.split(".")[0] == "example_scaffold"]:
        del sys.modules[name]


def test_it_is_the_installed_one() -> None:
    kind = find("example_scaffold")
    module = importlib.import_module(kind.__module__)
    assert "site-packages" in str(module.__file__)
    code, out, err = run_module("edgefed.cli.main", "plugin", "list", "--json")
    assert (code, err) == (0, "")
    assert {
        "kind": "algorithm",
        "name": "example_scaffold",
        "package": "example-scaffold",
        "problem": "",
    } in json.loads(out)


def test_it_holds_the_contract() -> None:
    check_algorithm(find("example_scaffold"), {"clients": 5})


SCRIPT = """
import json, site, sys
site.addsitedir(sys.argv[1])
from edgefed.files.source_digest import package_digest
print(json.dumps(package_digest("example-scaffold")))
"""


def installed_digest(site: Path) -> str:
    """Return the digest of the example as a process sees it that starts with this folder."""
    words = [sys.executable, "-c", SCRIPT, str(site)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    text: str = json.loads(done.stdout)
    return text


@pytest.mark.slow
def test_its_source_digest_is_the_same_from_a_wheel_and_editable(
    installed: Path, tmp_path: Path
) -> None:
    wheel = installed_digest(installed)
    editable = install(SOURCE, tmp_path / "editable", editable=True)
    assert not (editable / "example_scaffold").exists()
    assert installed_digest(editable) == wheel
    source = tmp_path / "editable" / "source" / "example_scaffold" / "settings.py"
    source.write_text(source.read_text() + "# changed\n")
    assert installed_digest(editable) != wheel


# -- its table ----------------------------------------------------------------------------------


def test_its_control_norms_appear_wherever_a_run_is_shown(tmp_path: Path) -> None:
    """Live, after a restart, in a replay, on the screen, in ``--json`` and in the report."""
    live: list[Snapshot] = []
    simulation = Simulation(fleet_plan(), tmp_path / "state", SystemClock())
    builder = SnapshotBuilder(Snapshot())

    def watch(event: Event, number: int) -> None:
        builder.apply(event)
        live.append(builder.snapshot())

    simulation.journal.listen(watch)
    record = simulation.run().record
    folder = tmp_path / "state" / "runs" / record.run
    tables = live[-1].tables
    shown = tables[0]
    assert [view.table.name for view in tables[1:]] == ["contributions", "phases"]
    assert (shown.table.name, shown.table.head()) == ("control norms", ("array", "norm"))
    assert [row.key for row in shown.table.rows] == [
        "fc1.weight", "fc1.bias", "out.weight", "out.bias",
    ]  # fmt: skip
    assert [point.round for point in shown.history] == [0, 1, 2, 3, 4]
    totals = [point.values["all arrays"] for point in shown.history]
    assert totals[0] == 0
    assert all(totals[1:])
    norms = [row.cells[0] for row in shown.table.rows]
    assert np.linalg.norm(np.array(norms, float)) == pytest.approx(totals[-1], rel=1e-4)
    assert summarise(Log(folder / "events.jsonl").events()).tables == tables
    with closing(Store(tmp_path / "state", durable=False)) as store:
        assert with_last_run(Snapshot(), store).tables == tables, "after a restart"
    replay = Playback(Recording.read(folder / "events.jsonl"))
    replay.move(10**6, 10**6)
    assert replay.snapshot().tables == tables, "in a replay"
    for snapshot in (live[-1], replay.snapshot()):
        drive(dashboard(fine(snapshot), screen="tables"), _on_the_screen, size=(80, 24))
    code, out, err = run_module("edgefed.cli.main", "run", "tables", str(folder), "--json")
    assert (code, err) == (0, "")
    told, *_ = json.loads(out)["tables"]
    assert told["rows"] == [{"key": row.key, "cells": list(row.cells)} for row in shown.table.rows]
    assert told["history"][-1] == {"round": 4, "values": {"all arrays": totals[-1]}}
    code, out, _ = run_module("edgefed.cli.main", "run", "tables", str(folder))
    assert code == 0
    assert "ARRAY" in out
    assert "the control variate has the norm" in out
    page = report(run_data_of_folder(folder))
    assert "<h2>control norms</h2>" in page
    assert "control norms by round" in page
    rows = (folder / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["control_norms.all_arrays"] for row in rows] == totals[1:]


async def _on_the_screen(pilot: Pilot[None]) -> None:
    """Look at the table and its series."""
    assert heading(pilot, "#table") == "control norms  round 4  table 1 of 3"
    verdict, totals, head, *rows = words(pilot, "#table")
    assert verdict[:3] == ["the", "control", "variate"], "verdict first"
    assert (totals[:2], head) == (["all", "arrays"], ["ARRAY", "NORM"])
    assert [row[0] for row in rows[:4]] == ["fc1.weight", "fc1.bias", "out.weight", "out.bias"]
    series = words(pilot, "#series")
    assert series[0] == ["SERIES", "r0", "r1", "r2", "r3", "r4", "TREND"]
    assert series[1][:3] == ["all", "arrays", "0"]


# -- a fleet ------------------------------------------------------------------------------------


def fleet_plan() -> Recipe:
    return Recipe.model_validate(
        {
            "name": "scaffold",
            "seed": 7,
            "model": {"name": "mlp", "hidden": [16]},
            "algorithm": {"name": "example_scaffold"},
            "data": {"partition": "classes", "classes_per_device": 4, "limit": 300},
            "training": {"batch_size": 8, "learning_rate": 0.05},
            "rounds": {
                "count": 4,
                "cohort": 3,
                "lost_grace": "deadline",
                "quorum": 1.0,
                "min_devices": 3,
            },
            "wire": {"uplink": "int8"},
            "evaluation": {"on": "coordinator"},
            "simulation": {"devices": 3},
        }
    )


@pytest.mark.slow
@pytest.mark.mosquitto
def test_the_same_bits_in_a_simulation_and_over_mqtt_after_a_sigkill(tmp_path: Path) -> None:
    recipe = fleet_plan()
    with fleet(tmp_path / "home", recipe) as home:
        spy = Spy(home.address, FLEET)
        try:
            run = home.begin()
            spy.at(3, "training", "device-01", lambda: home.kill("device-01"))
            home.start("device-01")
            record = home.finish(run)
        finally:
            spy.close()
        accepted = home.events(run, "reply", question="fit", outcome="accepted")
    assert record["status"] == "finished", record["reason"]
    assert len(accepted) == 12
    virtual = Simulation(recipe, tmp_path / "sim", SystemClock()).run().record
    assert record["weights_digest"] == virtual.weights_digest

"""``edgefed match show``: the matched layers of a run as text, as JSON and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from edgefed.cli.printed.run_text import _growth
from edgefed.cli.runs.tables import MOST_ROUNDS, tables_text
from edgefed.config.recipes.recipe import Recipe
from edgefed.events.base.method_tables import Point, TableView
from edgefed.events.history.summary import RunSummary
from edgefed.events.methods.matching_table import layer_row, layer_table
from edgefed.process.clock import SystemClock
from edgefed.report.page import report
from edgefed.report.run_data import RunData, run_data_of_folder
from edgefed.report.tables import MAX_CURVES
from edgefed.simulator.run import Simulation
from tests.cli.commands import edgefed
from tests.cli.conftest import SmallFleet

HIDDEN, DEVICES, ROUNDS = (6, 5), 3, 2
LAYERS = ["fc1", "fc2"]


def simulated(state: Path, **algorithm: Any) -> Path:
    plan = Recipe.model_validate(
        {
            "model": {"name": "mlp", "hidden": list(HIDDEN)},
            "algorithm": algorithm,
            "data": {"partition": "dirichlet", "limit": 200},
            "rounds": {"count": ROUNDS},
            "simulation": {"devices": DEVICES, "engine": "sequential"},
        }
    )
    result = Simulation(plan, state / "simulations", SystemClock()).run()
    assert result.record.status == "finished", result.record.reason
    return result.folder


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder with a simulated run whose layers were matched."""
    folder = tmp_path_factory.mktemp("state")
    simulated(folder, name="fedma")
    return folder


def test_a_simulated_run_in_json(state: Path) -> None:
    told = edgefed("match", "show", "--local", "--json", state=state).json
    assert (told["round"], told["matched"], told["total"], told["devices"]) == (ROUNDS, 2, 2, 3)
    assert [(row["layer"], row["local"]) for row in told["layers"]] == list(
        zip(LAYERS, HIDDEN, strict=True)
    )
    for row in told["layers"]:
        assert row["growth"] == row["atoms"] / row["local"] >= 1
        assert 1 <= row["holders"] <= DEVICES
        assert row["objective"] is not None
    assert [row["round"] for row in told["history"]] == [1, 2]
    last = told["history"][-1]
    assert last["widths"] == [row["atoms"] for row in told["layers"]]
    assert last["growth"] == pytest.approx(told["growth"], abs=1e-4)


def test_a_simulated_run_as_text(state: Path) -> None:
    told = edgefed("match", "show", "--local", state=state)
    assert (told.code, told.err) == (0, "")
    _, head, layers, series = told.out.split("\n\n")
    assert "round 2, matching found " in head and "; growth " in head
    assert head.endswith(" of 3 devices hold a unit")
    assert layers.splitlines()[0].split() == [
        "LAYER", "LOCAL", "ATOMS", "GROWTH", "HOLDERS", "OBJECTIVE", "MATCHED", "[ROUND]",
    ]  # fmt: skip
    assert [line.split()[0] for line in layers.splitlines()[1:]] == LAYERS
    rows = [line.split()[0] for line in series.splitlines()]
    assert rows == ["SERIES", *LAYERS, "devices", "growth"]


def test_run_show_and_metrics_have_the_growth(state: Path) -> None:
    told = edgefed("match", "show", "--local", "--json", state=state).json
    shown = edgefed("run", "show", "--local", state=state).out.splitlines()
    (line,) = (line for line in shown if line.startswith("growth"))
    assert line.split(maxsplit=1)[1] == f"{told['growth']:.2f} times the parameters of a device"
    (folder,) = (state / "simulations" / "runs").iterdir()
    assert "growth" in (folder / "metrics.csv").read_text().splitlines()[0].split(",")


def test_the_growth_that_is_shown_is_that_of_the_last_complete_round() -> None:
    assert _growth([{"growth": 1.5}, {"growth": 1.25}, {"growth": None}, {}]) == (
        "1.25 times the parameters of a device"
    )


def words_of(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [each.text or "" for each in root.iter() if each.tag.endswith("text")]


def test_a_picture_and_the_report_show_widths_and_growth(state: Path, tmp_path: Path) -> None:
    (folder,) = (state / "simulations" / "runs").iterdir()
    file = tmp_path / "widths.svg"
    told = edgefed("match", "show", folder, "--svg", file, state=state)
    assert (told.code, told.out.strip()) == (0, str(file))
    words = words_of(file.read_text())
    for word in (*LAYERS, "matched layers by round", "matched layers: devices, growth by round"):
        assert any(word in text for text in words), word
    page = report(run_data_of_folder(folder))
    assert "<h2>matched layers</h2>" in page
    assert "matched layers: devices, growth by round" in page


def test_a_run_without_matching_says_so(tmp_path: Path) -> None:
    folder = simulated(tmp_path, name="fedavg")
    told = edgefed("match", "show", folder, state=tmp_path)
    assert (told.code, told.out) == (0, "")
    assert told.err.strip() == f"Run {folder.name} matches no layers: its algorithm is fedavg."
    json = edgefed("match", "show", folder, "--json", state=tmp_path).json
    assert json == {"run": folder.name, "layers": []}
    picture = edgefed("match", "show", folder, "--svg", tmp_path / "x.svg", state=tmp_path)
    picture.failed(2, "matching.none", "fedavg", "--svg")
    assert not (tmp_path / "x.svg").exists()
    assert "matched layers" not in report(run_data_of_folder(folder))
    assert "growth" not in edgefed("run", "show", "--local", state=tmp_path).out


def test_the_coordinator_tells_a_run_over_mqtt(fleet: SmallFleet) -> None:
    run = fleet.begin("--algorithm", "fedma", "--rounds", "2")
    fleet.wait_for(run, "finished")
    told = fleet("match", "show", run, "--json").json
    assert (told["run"], told["round"], told["devices"]) == (run, 2, 2)
    assert told["matched"] == told["total"] == len(told["layers"]) > 0
    assert [row["round"] for row in told["history"]] == [1, 2]


def deep(rounds: int, left_out: int = 0) -> RunData:
    """A run whose second layer follows the first, and whose third is not matched yet."""
    rows = (
        layer_row("conv1", 4, 6, 2.5, -1234567.25, rounds),
        layer_row("conv2", 4, 6, 2.5, None, rounds),
        layer_row("fc1", 8, 0, 0.0, None, None),
    )
    history = tuple(
        Point(round=number, values={"conv1": float(number), "conv2": 2.0 * number})
        for number in range(1, rounds + 1)
    )
    table = layer_table(rows, rounds, 1, None)
    view = TableView(table=table, round=rounds, left_out=left_out, history=history)
    return RunData({"run": "r-1"}, {}, (), RunSummary(tables=(view,)))


def text_of(run_data: RunData) -> list[list[str]]:
    parts = tables_text(run_data, run_data.summary.tables).split("\n\n")
    return [part.splitlines() for part in parts]


def test_what_is_not_known_yet_is_left_empty() -> None:
    (headline,), layers, widths = text_of(deep(2))
    assert headline == (
        "matched layers, round 2, matching found 12 units for the 8 of a device in 2 of 3 layers;"
        " on average 2.5 of 1 device hold a unit"
    )
    assert [line.split() for line in layers[1:]] == [
        ["conv1", "4", "6", "1.50", "2.50", "-1.23457e+06", "2"],
        ["conv2", "4", "6", "1.50", "2.50", "2"],
        ["fc1", "8"],
    ]
    assert [line.split() for line in widths[1:]] == [["conv1", "1", "2"], ["conv2", "2", "4"]]


def test_many_rounds_and_layers_are_shown_in_part_and_that_is_said() -> None:
    run_data = deep(40, left_out=897)
    _, _, (left_out,), widths, (rounds,) = text_of(run_data)
    assert left_out == "The first 3 of 900 rows are shown"
    assert rounds == f"{MOST_ROUNDS} of 40 rounds are shown."
    shown = widths[0].split("ROUND")[1:]
    assert (len(shown), shown[0].strip(), shown[-1].strip()) == (MOST_ROUNDS, "1", "40")
    assert left_out in report(run_data)


def test_of_a_deep_network_some_layers_are_drawn_and_all_are_listed() -> None:
    names = [f"conv{number}" for number in range(MAX_CURVES + 9)]
    table = layer_table([layer_row(name, 4, 5, 1.0, None, 2) for name in names], 2, 3, None)
    points = tuple(Point(round=number, values=table.series) for number in (1, 2))
    view = TableView(table=table, round=2, history=points)
    page = report(RunData({"run": "r-1"}, {}, (), RunSummary(tables=(view,))))
    assert f"The first {MAX_CURVES} of {len(names)} rows are drawn by round" in page
    drawn = [f"<title>{name}</title>" in page for name in names]
    assert drawn == [True] * MAX_CURVES + [False] * 9
    assert all(f">{name}</td>" in page for name in names)

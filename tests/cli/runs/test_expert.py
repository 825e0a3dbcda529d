"""``edgefed expert show``: the experts of a run as text, as JSON and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from edgefed.cli.runs.tables import tables_text
from edgefed.config.recipes.recipe import Recipe
from edgefed.events.base.method_tables import TableView
from edgefed.events.history.summary import RunSummary
from edgefed.events.methods import expert_tables
from edgefed.process.clock import SystemClock
from edgefed.report.page import report
from edgefed.report.run_data import RunData, run_data_of_folder
from edgefed.simulator.run import Simulation
from tests.cli.commands import edgefed

EXPERTS, DEVICES, ROUNDS = 3, 4, 2


def plan(algorithm: dict[str, Any]) -> Recipe:
    return Recipe.model_validate(
        {
            "model": {"name": "mlp", "hidden": [4]},
            "algorithm": algorithm,
            "data": {"partition": "classes", "classes_per_device": 2, "limit": 200},
            "rounds": {"count": ROUNDS},
            "simulation": {"devices": DEVICES, "engine": "sequential"},
        }
    )


def simulated(state: Path, **algorithm: Any) -> Path:
    result = Simulation(plan(algorithm), state / "simulations", SystemClock()).run()
    assert result.record.status == "finished", result.record.reason
    return result.folder


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder with a simulated run that has experts."""
    folder = tmp_path_factory.mktemp("state")
    simulated(folder, name="fedmoe", experts=EXPERTS)
    return folder


def test_a_simulated_run_in_json(state: Path) -> None:
    told = edgefed("expert", "show", "--local", "--json", state=state).json
    assert (told["experts"], told["round"], told["condition"]) == (EXPERTS, ROUNDS, "label")
    assert [row["value"] for row in told["table"]] == [str(label) for label in range(10)]
    for shares in (told["load"], *(row["shares"] for row in told["table"])):
        assert sum(shares) == pytest.approx(1, abs=1e-3)
    assert [row["device"] for row in told["mixtures"]] == [f"device-0{n}" for n in range(DEVICES)]
    assert {row["round"] for row in told["mixtures"]} == {ROUNDS}
    assert [row["round"] for row in told["history"]] == [0, 1, 2]


def test_a_simulated_run_as_text(state: Path) -> None:
    told = edgefed("expert", "show", "--local", state=state)
    assert (told.code, told.err) == (0, "")
    parts = told.out.split("\n\n")
    assert "; all 3 experts are used; entropy of the load 1.10 of 1.10" in parts[1]
    tables = [part.splitlines() for part in parts if len(part.splitlines()) > 1]
    assert [lines[0].split() for lines in tables] == [
        ["EXPERT", "LOAD", "DEVICES", "STATE"],
        ["SERIES", "ROUND", "0", "ROUND", "1", "ROUND", "2"],
        ["LABEL", "E0", "E1", "E2"],
        ["DEVICE", "SAMPLES", "ROUND", "E0", "E1", "E2", "KEPT"],
    ]
    assert len(tables[2]) == 1 + 10
    assert all(row.endswith("all") for row in tables[3][1:])


def test_a_picture_and_the_report_show_tables_mixtures_and_load(
    state: Path, tmp_path: Path
) -> None:
    (folder,) = (state / "simulations" / "runs").iterdir()
    file = tmp_path / "experts.svg"
    told = edgefed("expert", "show", folder, "--svg", file, state=state)
    assert (told.code, told.out.strip()) == (0, str(file))
    root = ElementTree.fromstring(file.read_text())
    words = [each.text for each in root.iter() if each.tag.endswith("text")]
    for word in ("device-03", "e2", "experts by round", "q(z|y): shares of each label by round"):
        assert any(word in (text or "") for text in words), word
    assert "<h2>experts</h2>" in report(run_data_of_folder(folder))


def test_a_run_without_experts_says_so(tmp_path: Path) -> None:
    folder = simulated(tmp_path, name="fedavg")
    told = edgefed("expert", "show", folder, state=tmp_path)
    assert (told.code, told.out) == (0, "")
    assert told.err.strip() == f"Run {folder.name} has no experts: its algorithm is fedavg."
    json = edgefed("expert", "show", folder, "--json", state=tmp_path).json
    assert json == {"run": folder.name, "experts": 0}
    picture = edgefed("expert", "show", folder, "--svg", tmp_path / "x.svg", state=tmp_path)
    picture.failed(2, "experts.none", "fedavg", "--svg")
    assert not (tmp_path / "x.svg").exists()
    assert "<h2>experts</h2>" not in report(run_data_of_folder(folder))


def many(experts: int, **states: str) -> RunData:
    """Return a run of many experts, whose other rows and devices are left out."""
    share = (1 / experts,) * experts
    divergence = (0.25, *[None] * (experts - 1))
    named = {int(name[1:]): state for name, state in states.items()}
    load = expert_tables.load_table(experts, 7, share, 3.0, named, divergence, ())
    rows = [("north", share), ("south", share)]
    mixture = expert_tables.mixture_row("a", 9, 7, share, (1, 3))
    tables = (
        TableView(table=load, round=7),
        TableView(table=expert_tables.share_table("site", experts, rows), left_out=898),
        TableView(table=expert_tables.mixture_table(experts, [mixture]), left_out=5),
    )
    return RunData({"run": "r-1"}, {}, (), RunSummary(tables=tables))


def test_many_experts_share_a_column_and_what_is_left_out_is_said() -> None:
    run_data = many(40, e2="dead")
    text = tables_text(run_data, run_data.summary.tables)
    assert "! dead: e2" in text
    assert "The first 2 of 900 rows are shown" in text
    assert "The first 1 of 6 rows are shown" in text
    tables = [part.splitlines() for part in text.split("\n\n")]
    (experts, site, mixture) = (lines for lines in tables if lines[0].isupper())
    assert experts[0].split() == ["EXPERT", "LOAD", "DEVICES", "DIVERGENCE", "STATE"]
    assert "0.25" in experts[1]
    assert experts[3].split() == ["e2", "2.5%", "0", "dead"]
    assert site[0].split() == ["SITE", "SHARES"]
    assert "e0 0.03 e1 0.03 e2 0.03 e3 0.03" in site[1]
    assert mixture[0].split() == ["DEVICE", "SAMPLES", "ROUND", "SHARES", "KEPT"]
    assert mixture[1].endswith("e1 e3")
    assert "The first 2 of 900 rows are shown" in report(run_data)


def test_of_many_shares_the_largest_are_named() -> None:
    shares = tuple(float(expert == 7) for expert in range(12))
    table = expert_tables.share_table("site", 12, [("north", shares)])
    run_data = RunData({"run": "r-1"}, {}, (), RunSummary(tables=(TableView(table=table),)))
    assert "e7 1.00 e0 0.00" in tables_text(run_data, run_data.summary.tables)


def test_a_collapsed_run_is_a_warning_in_text_and_report() -> None:
    run_data = many(2, e0="dead", e1="collapsed")
    assert "! collapsed on e1" in tables_text(run_data, run_data.summary.tables)
    assert "collapsed on e1" in report(run_data)

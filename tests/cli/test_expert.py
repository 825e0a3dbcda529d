"""``edgefed expert show``: the experts of a run as text, as JSON and as a picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from edgefed.cli.expert_output import experts_json, experts_text
from edgefed.clock import SystemClock
from edgefed.config.recipe import Recipe
from edgefed.events.expert_history import ExpertHistory
from edgefed.events.snapshot import ExpertsView, MixtureView
from edgefed.events.summary import RunSummary
from edgefed.report.page import report
from edgefed.report.run_data import RunData, run_data_of_folder
from edgefed.simulator.run import Simulation
from tests.cli.commands import edgefed
from tests.cli.conftest import SmallFleet

EXPERTS, DEVICES, ROUNDS = 3, 4, 2
MOE = ("--algorithm", "fedmoe", "--set", f"algorithm.experts={EXPERTS}")


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
    assert "round 2, 3 experts, entropy of the load 1.10 of 1.10" in parts[0]
    heads = [part.splitlines()[0].split() for part in parts[1:]]
    assert heads == [
        ["EXPERT", "LOAD", "DEVICES", "STATE"],
        ["LABEL", "e0", "e1", "e2"],
        ["DEVICE", "SAMPLES", "ROUND", "e0", "e1", "e2", "KEPT"],
    ]
    assert len(parts[2].splitlines()) == 1 + 10
    assert all(row.endswith("all") for row in parts[3].splitlines()[1:])


def test_a_picture_and_the_report_show_tables_mixtures_and_load(
    state: Path, tmp_path: Path
) -> None:
    (folder,) = (state / "simulations" / "runs").iterdir()
    file = tmp_path / "experts.svg"
    told = edgefed("expert", "show", folder, "--svg", file, state=state)
    assert (told.code, told.out.strip()) == (0, str(file))
    root = ElementTree.fromstring(file.read_text())
    words = [each.text for each in root.iter() if each.tag.endswith("text")]
    for word in ("round 0", "round 2", "device-03", "e2", "Load of the experts"):
        assert any(word in (text or "") for text in words), word
    assert "<h2>Experts</h2>" in report(run_data_of_folder(folder))


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
    assert "<h2>Experts</h2>" not in report(run_data_of_folder(folder))


def test_no_run_and_no_coordinator(tmp_path: Path) -> None:
    edgefed("expert", "show", "--local", state=tmp_path).failed(5, "run.unknown")
    nowhere = ("--broker", "mqtt://127.0.0.1:1", "expert", "show", "r-1")
    edgefed(*nowhere, state=tmp_path).failed(
        3, "broker.unreachable", "edgefed expert show r-1 --local"
    )


def test_the_coordinator_tells_a_run_over_mqtt(fleet: SmallFleet) -> None:
    run = fleet.begin(*MOE, "--rounds", "2")
    fleet.wait_for(run, "finished")
    told = fleet("expert", "show", run, "--json").json
    assert (told["run"], told["experts"], told["round"]) == (run, EXPERTS, 2)
    assert len(told["mixtures"]) == 2


def many(experts: int, **changes: Any) -> RunData:
    share = (1 / experts,) * experts
    now = ExpertsView(
        experts=experts, round=7, condition="site", load=share, entropy=3.0, labels=900,
        table=(share,) * 2, divergence=(0.25, *[None] * (experts - 1)),
    )  # fmt: skip
    mixtures = (MixtureView(device="a", samples=9, round=7, shares=share, kept=(1, 3)),)
    history = ExpertHistory(now=now.model_copy(update=changes), mixtures=mixtures, more_mixtures=5)
    return RunData({"run": "r-1"}, {}, (), RunSummary(experts=history))


def test_many_experts_share_a_column_and_what_is_left_out_is_said() -> None:
    run_data = many(40, dead=(2,))
    assert run_data.summary.experts is not None
    text = experts_text(run_data, run_data.summary.experts)
    assert "! dead: e2" in text
    assert "The first 2 of 900 rows are shown." in text
    assert "5 more devices are not shown." in text
    (site, mixture) = (part.splitlines() for part in text.split("\n\n")[2::2])
    assert site[0].split() == ["SITE", "SHARES"]
    assert "e0 0.03 e1 0.03 e2 0.03 e3 0.03" in site[1]
    assert mixture[1].endswith("e1 e3")
    expert = text.split("\n\n")[1].splitlines()
    assert expert[0].split()[3] == "DIVERGENCE"
    assert "0.25" in expert[1]
    assert experts_json(run_data)["table_rows"] == 900
    assert "The first 2 of 900 rows are shown." in report(run_data)


def test_a_device_counts_under_its_largest_share_alone() -> None:
    history = many(3).summary.experts
    assert history is not None
    shares = ((0.2, 0.5, 0.3), (0.1, 0.8, 0.1), (0.4, 0.2, 0.4))
    mixtures = tuple(
        MixtureView(device=f"d-{n}", samples=9, round=7, shares=each, kept=(0, 1, 2))
        for n, each in enumerate(shares)
    )
    run_data = replace(
        many(3), summary=RunSummary(experts=history.model_copy(update={"mixtures": mixtures}))
    )
    assert experts_json(run_data)["devices"] == [1, 2, 0]
    assert run_data.summary.experts is not None
    rows = experts_text(run_data, run_data.summary.experts).split("\n\n")[1].splitlines()
    assert [row.split()[2] for row in rows[1:]] == ["1", "2", "0"]


def test_a_collapsed_run_is_a_warning_in_text_and_report() -> None:
    run_data = many(2, load=(0.0, 1.0), collapsed=True, dead=(0,))
    assert run_data.summary.experts is not None
    assert "! collapsed on e1" in experts_text(run_data, run_data.summary.experts)
    assert "collapsed on e1" in report(run_data)

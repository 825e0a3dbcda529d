"""Runs side by side on the command line, of a coordinator and of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import edgefed
from tests.cli.conftest import SmallFleet
from tests.simulated_runs import simulate


def test_simulations_are_compared_without_a_coordinator(tmp_path: Path) -> None:
    first = simulate(tmp_path)
    second = simulate(tmp_path, "--rounds", "2", "--set", "training.learning_rate=0.05")
    told = edgefed("run", "compare", first, second, "--local", "--json", state=tmp_path).json
    shown = [edgefed("run", "show", run, "--local", "--json", state=tmp_path).json
             for run in (first, second)]  # fmt: skip
    for run, record in zip(told["runs"], shown, strict=True):
        for name in ("run", "algorithm", "round", "accuracy", "bytes_up", "seconds", "epsilon"):
            assert run[name] == record[name]
        assert run["best_accuracy"] == max(row["accuracy"] for row in record["history"])
    assert told["settings"] == [
        {"key": "training.learning_rate", "values": {first: 0.2, second: 0.05}},
        {"key": "rounds.count", "values": {first: 3, second: 2}},
    ]
    table = edgefed("run", "compare", first, second, "--local", state=tmp_path).out.splitlines()
    assert table[0].split() == [first, second]
    assert [line.split() for line in table[-2:]] == [
        ["training.learning_rate", "0.2", "0.05"],
        ["rounds.count", "3", "2"],
    ]
    same = edgefed("run", "compare", first, first[:6], "--local", state=tmp_path).out
    assert same.splitlines()[-1].split() == ["settings", "the", "same", "the", "same"]


@pytest.mark.mosquitto
def test_runs_of_a_coordinator_are_compared(fleet: SmallFleet) -> None:
    runs = []
    for rounds in ("1", "2"):
        runs.append(fleet.begin("--rounds", rounds))
        fleet.wait_for(runs[-1], "finished")
    told = fleet("run", "compare", *runs, "--json").json
    assert [(run["run"], run["round"]) for run in told["runs"]] == [(runs[0], 1), (runs[1], 2)]
    assert told["settings"] == [
        {"key": "rounds.count", "values": {runs[0]: 1, runs[1]: 2}},
    ]


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    run = simulate(tmp_path)
    edgefed("run", "compare", run, "--local", state=tmp_path).failed(2, "usage", "two runs")
    edgefed("run", "compare", run, "r-9", "--local", state=tmp_path).failed(
        5, "run.unknown", "No run r-9"
    )

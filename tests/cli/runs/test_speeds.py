"""``edgefed run speeds``: the speeds of a run's devices, as a file that ``[speeds]`` reads."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.process.clock import SystemClock
from edgefed.report.run_data import EVENTS
from edgefed.report.speeds import round_overhead
from edgefed.simulator.local_fleet import device_names
from edgefed.simulator.run import Simulation, SimulationResult
from tests.cli.commands import Told, edgefed
from tests.cli.conftest import SmallFleet

HEAD = "device,seconds_per_sample,uplink,downlink"


def simulated(state: Path, **sections: dict[str, Any]) -> SimulationResult:
    """Return a finished simulation in a state folder."""
    values: dict[str, dict[str, Any]] = {
        "model": {"name": "mlp", "hidden": [4]},
        "data": {"partition": "dirichlet", "limit": 300},
        "training": {"epochs": 3, "least_epochs": 1},
        "rounds": {"count": 6},
        "simulation": {"devices": 4, "workers": 1},
    }
    merged = {name: {**values.get(name, {}), **sections.get(name, {})} for name in values}
    recipe = Recipe.model_validate({**sections, **merged})
    result = Simulation(recipe, state / "simulations", SystemClock()).run()
    assert result.record.status == "finished", result.record.reason
    return result


def speeds(*words: str | Path, state: Path | None = None) -> Told:
    return edgefed("run", "speeds", *words, state=state)


def table(text: str) -> dict[str, tuple[str, ...]]:
    """Return the cells of each device."""
    return {device: tuple(cells) for device, *cells in list(csv.reader(io.StringIO(text)))[1:]}


@pytest.mark.parametrize(
    ("rounds", "absent"),
    [
        ({"count": 3}, 0.3),
        ({"count": 16, "mode": "buffered", "buffer": 2, "max_staleness": 1000}, 0.0),
    ],
    ids=["synchronous", "buffered"],
)
def test_a_run_in_virtual_time_gives_back_the_speeds_that_were_put_in(
    tmp_path: Path, rounds: dict[str, Any], absent: float
) -> None:
    draws = np.random.default_rng(1)
    put_in = {
        name: (float(f"{seconds:.5g}"), float(f"{rate:.5g}"))
        for name, seconds, rate in zip(
            device_names(4), draws.lognormal(-4, 2, 4), draws.lognormal(9, 2, 4), strict=True
        )
    }
    put_in["device-02"] = (put_in["device-02"][0], 0.0)  # without a limit
    file, written = tmp_path / "put in.csv", tmp_path / "written.csv"
    rows = "".join(f"{name},{s!r},{up!r}\n" for name, (s, up) in put_in.items())
    file.write_text(f"device,seconds_per_sample,uplink\n{rows}")
    given = {"seconds_per_sample": 9.0, "uplink": 7.0, "downlink": 1e4, "absent": absent}
    others = {
        "rounds": {"deadline": 1e6, **rounds},
        "evaluation": {"on": "both"},
        "simulation": {"holdout": 0.2},
    }
    first = simulated(tmp_path, **others, speeds={**given, "file": str(file)})
    told = speeds(first.folder)
    assert (told.code, told.err) == (0, "")
    assert told.out.splitlines()[0] == HEAD
    assert {
        name: (float(seconds), float(up)) for name, (seconds, up, _) in table(told.out).items()
    } == put_in
    assert {down for _, _, down in table(told.out).values()} == {""}
    written.write_text(told.out)
    again = simulated(tmp_path, **others, speeds={**given, "file": str(written)})
    assert again.record.seconds == pytest.approx(first.record.seconds)
    assert again.record.weights_digest == first.record.weights_digest


def test_it_prints_json_and_names_devices_that_were_not_measured(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("device,seconds_per_sample\ndevice-00,0.01\ndevice-01,1e3\ndevice-02,0.25\n")
    rounds = {"deadline": 1000.0, "count": 2}
    speed = {"seconds_per_sample": 0.5, "file": str(file)}
    run = simulated(tmp_path, rounds=rounds, speeds=speed, data={"partition": "iid"})
    told = speeds("--local", state=tmp_path)
    assert list(table(told.out)) == ["device-00", "device-02", "device-03"]
    assert told.err.strip() == "1 device without a measured answer: device-01"
    rows = speeds(run.record.run, "--local", "--json", state=tmp_path).json
    assert rows == [
        {"device": name, "seconds_per_sample": seconds, "uplink": 0.0, "downlink": None}
        | {"joules_per_sample": None}
        for name, seconds in (("device-00", 0.01), ("device-02", 0.25), ("device-03", 0.5))
    ]


def test_the_median_counts_and_other_answers_do_not(tmp_path: Path) -> None:
    """Answers of earlier versions have no times, and what is no answer is skipped."""
    reply = {"kind": "reply", "device": "a", "question": "fit", "outcome": "accepted"}
    times = [(10, 1.0, 0.5, 100), (20, 8.0, 0.1, 100), (10, 3.0, None, 100), (10, 9.0, 1.0, 0)]
    rows = [
        {
            **reply,
            "trained_samples": 2 * n,
            "training_seconds": s,
            "upload_seconds": up,
            "bytes": size,
            "download_seconds": s / 2,
            "download_bytes": down,
            "joules": 3 * n,
        }
        for (n, s, up, size), down in zip(times, (65535, 80_000, 150_000, 65_536), strict=True)
    ]
    rows += [
        {**reply, "samples": 10},
        {**rows[0], "trained_samples": 0},
        {**rows[0], "device": None},
    ]
    rows += [{**rows[0], "training_seconds": -1}, {**rows[0], "outcome": "rejected"}]
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    (tmp_path / EVENTS).write_text(f"{lines}not JSON\n")
    assert table(speeds(tmp_path).out) == {"a": ("0.175", "600.0", "20000.0")}
    assert speeds(tmp_path, "--json").json[0]["joules_per_sample"] == 1.5


def test_the_overhead_of_a_round_is_the_time_that_speeds_do_not_explain(tmp_path: Path) -> None:
    whole_work: dict[str, dict[str, Any]] = {"training": {"least_epochs": 3}}
    run = simulated(tmp_path, speeds={"seconds_per_sample": 0.1}, **whole_work)
    assert round_overhead(run.folder) == 0
    whole = {"round": 1, "exchange": "x-1", "device": "a", "outcome": "accepted"}
    whole |= {"kind": "reply", "trained_samples": 1, "training_seconds": 1.0}
    rows: list[dict[str, Any]] = [
        {**whole, "upload_seconds": 2.0, "download_seconds": 4.0},
        {**whole, "device": "b", "training_seconds": 6.0},
        {**whole, "exchange": "x-2", "training_seconds": 0.5},
        {**whole, "round": 2},
        {"kind": "scored", "round": 1, "seconds": 10.0},  # 10 - 6 - 1: a usually takes 1 s, b 6
        {"kind": "scored", "round": 2, "seconds": 4.5},  # 4.5 - 1
        {**whole, "round": 5, "exchange": "x-5"},
        {"kind": "scored", "round": 5, "seconds": 3.5},  # 3.5 - 1
        {"kind": "scored", "round": 3, "seconds": 99.0},  # nothing was measured
        {**whole, "round": 4},
        {"kind": "scored", "round": 4, "seconds": None},  # of an earlier version
    ]
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / EVENTS).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert round_overhead(folder) == 3.0


def test_a_run_without_measurements_is_refused_in_one_line(tmp_path: Path) -> None:
    run = simulated(tmp_path)
    speeds(run.folder).failed(5, "speeds.none", "has no speeds", "earlier versions", "[speeds]")
    speeds(tmp_path).failed(5, "run.unknown", "not a run's folder")
    speeds("r-9999", "--local", state=tmp_path).failed(5, "run.unknown", "No run r-9999")


@pytest.mark.mosquitto
def test_agents_are_measured_in_the_exchanges_that_train(fleet: SmallFleet) -> None:
    run = fleet.begin("--algorithm", "fedmix", "--rounds", "3")
    folder = Path(fleet.wait_for(run, "finished")["folder"])
    measured = table(fleet("run", "speeds", run).out)
    assert list(measured) == list(device_names(2))
    # Over loopback an upload may take no time that is measured, which is an uplink without limit
    assert all(float(seconds) > 0 and float(up) >= 0 for seconds, up, _ in measured.values())
    events = [json.loads(line) for line in (folder / EVENTS).read_text().splitlines()]
    measures = [each for each in events if "upload_seconds" in each]
    assert {each["question"] for each in measures} == {"fit"}
    for each in measures:
        both = each.get("training_seconds", 0.0) + each["upload_seconds"]
        assert 0 < both <= each["seconds"] + 0.001
    fleet("run", "speeds", "r-9").failed(5, "run.unknown", "No run r-9")

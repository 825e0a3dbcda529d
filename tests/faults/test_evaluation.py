"""``edgefed run evaluate`` over a real broker, after a run has ended and agents were killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefed.config.recipe import Recipe
from tests.cli.commands import Told, edgefed
from tests.faults.fleet_processes import FLEET, FleetProcesses, fleet

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]


def plan() -> Recipe:
    return Recipe.model_validate(
        {
            "name": "evaluated",
            "seed": 7,
            "model": {"name": "mlp", "hidden": [8]},
            "data": {"name": "digits", "limit": 300, "partition": "iid"},
            "rounds": {"count": 1, "quorum": 1.0, "min_devices": 2},
            "evaluation": {"on": "both"},
            "simulation": {"devices": 2},
        }
    )


def evaluate(home: FleetProcesses, *words: str) -> Told:
    common = ("--no-config", "--fleet", FLEET, "--broker", str(home.address))
    return edgefed(*common, "run", "evaluate", *words)


def test_an_ended_run_is_tested_by_devices_that_were_killed(tmp_path: Path) -> None:
    with fleet(tmp_path / "home", plan(), holdout=0.2) as home:
        run = home.begin()
        ended = home.finish(run)
        for part in ("device-00", "coordinator"):
            home.kill(part)
            home.start(part)
        home.wait_for_devices(2)
        told = evaluate(home, run, "--json")
        assert told.code == 0, (told, home.logs())
        last = ended["history"][-1]
        scores = told.json["scores"]
        assert [scores[n] for n in ("accuracy", "loss")] == [last[n] for n in ("accuracy", "loss")]
        assert [each["device"] for each in told.json["devices"]] == ["device-00", "device-01"]
        text = evaluate(home, "--on", "devices")  # the newest run
        assert (text.code, f"{scores['device_accuracy']:.4f}" in text.out) == (0, True), text
        after = home.record(run)
        assert after["weights_digest"] == ended["weights_digest"]
        assert (after["status"], after["exchanges"]) == ("finished", ended["exchanges"] + 2)

        evaluate(home, "r-9999").failed(5, "run.unknown")
        evaluate(home, run, "--mode", "known").failed(2, "evaluate.mode", "fedavg")
        busy = home.begin(paused=True)
        evaluate(home, run).failed(4, "run.busy", busy)

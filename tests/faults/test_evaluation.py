"""``edgefed run evaluate`` over a real broker, after a run has ended and agents were killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_agent.tasks.device_store import read_releases
from edgefed.config.recipes.recipe import Recipe
from tests.cli.commands import Told, edgefed
from tests.faults.fleet_processes import FLEET, FleetProcesses, fleet

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]


def plan() -> Recipe:
    return Recipe.model_validate(
        {
            "name": "evaluated",
            "seed": 7,
            "model": {"name": "mlp", "hidden": [8]},
            "algorithm": {"name": "fedmoe", "experts": 2, "collect_gates": True},
            "data": {"name": "digits", "limit": 300, "partition": "iid"},
            "rounds": {"count": 1, "quorum": 1.0, "min_devices": 2},
            "evaluation": {"on": "both"},
            "wire": {"downlink": "fp32"},
            "simulation": {"devices": 2},
        }
    )


def evaluate(home: FleetProcesses, *words: str) -> Told:
    common = ("--no-config", "--fleet", FLEET, "--broker", str(home.address))
    return edgefed(*common, "run", "evaluate", *words)


def test_an_ended_run_is_tested_by_devices_that_were_killed(tmp_path: Path) -> None:
    sharing = {"device-00": {"share_gate": "true"}}
    with fleet(tmp_path / "home", plan(), holdout=0.2, settings=sharing) as home:
        run = home.begin()
        ended = home.finish(run)
        home.kill("device-00")
        home.start("device-00")
        home.wait_for_devices(2)
        told = evaluate(home, run, "--json")
        assert told.code == 0, (told, home.logs())
        last, scores = ended["history"][-1], told.json["scores"]
        for name in ("device_accuracy", "device_loss", "loss_known"):
            assert scores[name] == last[name]
        devices = [(each["device"], each["mode"]) for each in told.json["devices"]]
        assert devices == [("device-00", "known"), ("device-01", "known")], "gates are kept"
        folder = home.folder / "state" / "agents" / FLEET
        kinds = {
            name: [each.entry["kind"] for each in read_releases(folder / name, name) if each.run]
            for name in ("device-00", "device-01")
        }
        assert kinds == {"device-00": ["gate"], "device-01": []}, "as their owners say"
        assert home.events(run, "note", text="1 of 2 devices shared their gates (share_gate)")
        text = evaluate(home, "--on", "devices", "--mode", "marginal")  # the newest run
        assert (text.code, "devices_marginal" in text.out) == (0, True), text
        after = home.record(run)
        assert after["weights_digest"] == ended["weights_digest"]
        assert (after["status"], after["exchanges"]) == ("finished", ended["exchanges"] + 2)

        evaluate(home, "r-9999").failed(5, "run.unknown")
        busy = home.begin(paused=True)
        evaluate(home, run).failed(4, "run.busy", busy)


def test_devices_that_vanish_leave_the_comparable_best(tmp_path: Path) -> None:
    """Four devices have classes of their own; two are killed, and the coordinator in between."""
    chosen = Recipe.model_validate(
        {
            "seed": 7,
            "model": {"name": "mlp", "hidden": [8]},
            "data": {"name": "digits", "limit": 400, "classes_per_device": 2},
            "training": {"learning_rate": 0.1},
            "rounds": {"count": 4, "quorum": 0.5, "min_devices": 2, "lost_grace": 0},
            "evaluation": {"on": "devices"},
            "wire": {"downlink": "fp32"},
            "simulation": {"devices": 4},
        }
    )
    with fleet(tmp_path / "home", chosen, holdout=0.3) as home:
        run = home.begin(paused=True)
        for _ in range(2):  # rounds, with their tests
            home.step(run)
        for device in ("device-02", "device-03"):
            home.kill(device)
        home.wait_for_devices(2)
        home.kill("coordinator")
        home.start("coordinator")
        home.resume(run)
        ended = home.finish(run)
        assert ended["status"] == "finished", (ended, home.logs())
        rows = ended["history"]
        counts = [(row["tested_devices"], row["all_testers"], row["compared"]) for row in rows]
        assert counts == [(4, 4, True)] * 2 + [(2, 4, False)] * 2, home.logs()
        assert all(row["tested_labels"] < row["all_labels"] == 10 for row in rows[2:])
        (best,) = [model for model in ended["models"] if model.get("metric")]
        assert best["round"] == max(row["round"] for row in rows if row["is_best"]) <= 2
        assert (ended["tested_devices"], ended["all_testers"]) == (2, 4)

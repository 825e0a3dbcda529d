"""``edgefed run evaluate`` over a real broker, after a run has ended and agents were killed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from device_agent.tasks.device_store import read_releases
from edgefed.config.recipes.recipe import Recipe
from edgefed.simulator.local_fleet import device_names
from tests.cli.commands import Told, edgefed
from tests.faults.fleet_processes import FLEET, FleetProcesses, fleet

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]


DEVICES = device_names(4)
HOLDOUT = 0.3


def recipe(**sections: Any) -> Recipe:
    """Return a recipe that deals out the data of two classes to each device."""
    return Recipe.model_validate(
        {
            "seed": 7,
            "model": {"name": "mlp", "hidden": [8]},
            "data": {"name": "digits", "limit": 400, "classes_per_device": 2},
            "wire": {"downlink": "fp32"},
            "simulation": {"devices": len(DEVICES)},
            **sections,
        }
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetProcesses]:
    """The fleet of all tests, of whose owners one shares its gate."""
    own: dict[str, Any] = {"holdout": HOLDOUT, "settings": {DEVICES[0]: {"share_gate": "true"}}}
    with fleet(tmp_path_factory.mktemp("home"), recipe(), **own) as made:
        yield made


def evaluate(home: FleetProcesses, *words: str) -> Told:
    common = ("--no-config", "--fleet", FLEET, "--broker", str(home.address))
    return edgefed(*common, "run", "evaluate", *words)


def test_an_ended_run_is_tested_by_devices_that_were_killed(home: FleetProcesses) -> None:
    plan = recipe(
        algorithm={"name": "fedmoe", "experts": 2, "collect_gates": True},
        rounds={"count": 1, "quorum": 1.0, "min_devices": 4},
        evaluation={"on": "both"},
    )
    run = home.begin(plan)
    ended = home.finish(run)
    home.kill(DEVICES[0])
    home.start(DEVICES[0])
    home.wait_for_devices(4)
    told = evaluate(home, run, "--json")
    assert told.code == 0, (told, home.logs())
    last, scores = ended["history"][-1], told.json["scores"]
    for name in ("device_accuracy", "device_loss", "loss_known"):
        assert scores[name] == last[name]
    devices = [(each["device"], each["mode"]) for each in told.json["devices"]]
    assert devices == [(name, "known") for name in DEVICES], "gates are kept"
    folder = home.folder / "state" / "agents" / FLEET
    kinds = [
        [each.entry["kind"] for each in read_releases(folder / name, name) if each.run]
        for name in DEVICES
    ]
    assert kinds == [["gate"], [], [], []], "as their owners say"
    assert home.events(run, "note", text="1 of 4 devices shared their gates (share_gate)")
    text = evaluate(home, "--on", "devices", "--mode", "marginal")  # the newest run
    assert (text.code, "devices_marginal" in text.out) == (0, True), text
    after = home.record(run)
    assert after["weights_digest"] == ended["weights_digest"]
    assert (after["status"], after["exchanges"]) == ("finished", ended["exchanges"] + 2)

    evaluate(home, "r-9999").failed(5, "run.unknown")
    busy = home.begin(paused=True)
    evaluate(home, run).failed(4, "run.busy", busy)
    home.order(busy, "abort")
    home.finish(busy)

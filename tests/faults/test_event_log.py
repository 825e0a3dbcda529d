"""The event log of a coordinator that is killed, and of a broker that goes and comes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.process.clock import moment_of
from tests.cli.commands import edgefed
from tests.faults.fleet_processes import FLEET, FleetProcesses, fleet, wait_until

pytestmark = [pytest.mark.mosquitto, pytest.mark.slow]

RECIPE = Recipe.model_validate(
    {
        "name": "events",
        "model": {"name": "mlp", "hidden": [8]},
        "data": {"limit": 200},
        "rounds": {"count": 2, "min_devices": 2},
        "simulation": {"devices": 2},
    }
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetProcesses]:
    with fleet(tmp_path_factory.mktemp("home"), RECIPE) as made:
        yield made


def events(home: FleetProcesses, *words: str) -> list[dict[str, Any]]:
    """Return what ``edgefed events`` prints."""
    where = ("--broker", str(home.address), "--fleet", FLEET, "--state", home.folder / "operator")
    told = edgefed("events", *words, *where, "--json")
    assert told.code == 0, told.err
    return list(told.json)


def test_the_log_survives_a_kill_and_tells_the_outage(home: FleetProcesses) -> None:
    run = home.begin()
    home.finish(run)
    home.kill("device-01")
    wait_until(lambda: home.devices()["device-01"]["state"] == "lost", "a loss", home.logs)
    before = events(home)
    assert [each["outcome"] for each in before if each["device"] == "device-01"][-1] == "lost"
    home.kill("coordinator")
    home.start("coordinator")
    home.wait_for_devices(1)
    after = events(home, "--lines", "500")
    assert after[: len(before)] == before
    (outage,) = events(home, "--kind", "outage", "--problems")
    assert outage["text"].startswith("coordinator away for ")
    assert outage["text"].endswith(": killed, or its machine stopped")
    assert moment_of(before[-1]["time"]) <= moment_of(outage["since"]) <= moment_of(outage["time"])
    assert after.index(outage) == len(before)
    assert {each["kind"] for each in events(home, "--device", "device-01")} >= {"device"}
    (lost,) = events(home, "--kind", "lost")
    assert lost["device"] == "device-01"
    (order,) = events(home, "--by", "local", "--kind", "order")
    assert order["text"] == f"local ordered run start {run}"
    assert events(home, "round 2", "--lines", "1")[0]["kind"] == "scored"
    told = edgefed("events", "--kind", "outage", "--broker", str(home.address), "--fleet", FLEET)
    assert " outage  coordinator away for " in told.out
    assert told.out.count(" (from ") == 1
    lines = home._ask("snapshot")["snapshot"]["lines"]
    assert "round 2 done in" in " ".join(line["text"] for line in lines)


def test_the_coordinator_tells_how_long_the_broker_was_away(home: FleetProcesses) -> None:
    home.kill("broker")
    home.start("broker")
    home.wait_for_devices(1)
    wait_until(lambda: bool(events(home, "restored", "after")), "the broker's return", home.logs)
    lost, restored = events(home, "connection", "broker")[-2:]
    assert lost["problem"]
    assert restored["outcome"] == "outage"
    assert moment_of(lost["time"]) >= moment_of(restored["since"])
    for part in ("coordinator", "device-00"):
        said = (home.folder / f"{part}.log").read_text()
        assert "WARNING connection to the broker lost: " in said
        assert "INFO connection to the broker restored" in said

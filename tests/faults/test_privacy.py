"""Differential privacy over a real broker: the simulator's bits, after SIGKILL of every part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from device_agent.tasks.device_store import read_releases
from device_agent.tasks.ledger import Release
from edgefed.config.recipes.recipe import Recipe, SimulationSection
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.data.base.types import Shard
from edgefed.process.clock import SystemClock
from edgefed.sharing.update_accounting import Releases, epsilon_of
from edgefed.simulator.executors import Executor, Sequential
from edgefed.simulator.local_fleet import device_names
from edgefed.simulator.run import Simulation
from tests.faults.fleet_processes import FLEET, FleetProcesses, fleet
from tests.faults.traffic_recorder import Spy
from tests.seeded_agent import from_seed
from tests.support.private_randomness import of_round

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

SEEDED: dict[str, Any] = {
    "agent": "tests.seeded_agent",
    "coordinator": "tests.support.seeded_coordinator",
}
VICTIM = "device-01"


def recipe(privacy: dict[str, Any], **rounds: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "private",
            "seed": 7,
            "model": {"name": "mlp", "hidden": [16]},
            "data": {"partition": "iid", "limit": 300},
            "training": {"batch_size": 8, "learning_rate": 0.05},
            "rounds": {
                "count": 3,
                "lost_grace": "deadline",
                "quorum": 1.0,
                "min_devices": 3,
                **rounds,
            },
            "wire": {"downlink": "bf16", "uplink": "int8"},
            "privacy": {"noise_multiplier": 1.5, **privacy},
            "simulation": {"devices": 3},
        }
    )


def simulated(plan: Recipe, folder: Path) -> RunRecord:
    def seeded(
        shards: Sequence[Shard], settings: SimulationSection, tell: Any
    ) -> tuple[Executor, str]:
        return Sequential(shards, private_randomness=from_seed), ""

    done = Simulation(plan, folder, SystemClock(), executors=seeded, randomness=of_round).run()
    assert done.record.status == "finished", done.record.reason
    return done.record


def cost(releases: int) -> float:
    return epsilon_of([Releases(releases, 1.5)], 1e-5)


def releases(home: FleetProcesses, device: str, run: str) -> list[dict[str, Any]]:
    return [dict(each.entry) for each in update_releases(home, device) if each.run == run]


def update_releases(home: FleetProcesses, device: str) -> list[Release]:
    found = read_releases(home.folder / "state" / "agents" / FLEET / device, device)
    return [each for each in found if each.entry["kind"] == "update"]


@pytest.fixture(scope="module")
def settings() -> dict[str, dict[str, str]]:
    """What owners have set, for the next start of their agents."""
    return {}


@pytest.fixture(scope="module")
def home(
    settings: dict[str, dict[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FleetProcesses]:
    """A fleet whose noise anybody can derive."""
    folder, plan = tmp_path_factory.mktemp("home"), recipe({"mechanism": "local"})
    with fleet(folder, plan, settings=settings, **SEEDED) as made:
        yield made


@pytest.mark.parametrize(
    "privacy",
    [{"mechanism": "central", "adaptive": True, "population": 3}, {"mechanism": "local"}],
    ids=["central", "local"],
)
def test_a_killed_fleet_ends_in_the_simulators_bits_and_epsilon(
    privacy: dict[str, Any], home: FleetProcesses, tmp_path: Path
) -> None:
    plan = recipe(privacy)
    spy = Spy(home.address, FLEET)
    try:
        run = home.begin(plan)
        for number, part in ((1, VICTIM), (2, "coordinator"), (3, VICTIM)):
            spy.at(number, "training", VICTIM, partial(home.kill, part))
            home.start(part)
        record = home.finish(run)
    finally:
        spy.close()
    entries = {device: releases(home, device, run) for device in device_names(3)}
    assert record["status"] == "finished", record["reason"]
    virtual = simulated(plan, tmp_path / "sim")
    assert record["weights_digest"] == virtual.weights_digest
    assert record["epsilon"] == virtual.epsilon == cost(3)
    assert [row["epsilon"] for row in record["history"]] == [cost(1), cost(2), cost(3)]
    told = 3 if privacy["mechanism"] == "local" else 0
    assert {device: len(each) for device, each in entries.items()} == dict.fromkeys(entries, told)
    assert all(entry["epsilon"] == cost(1) for each in entries.values() for entry in each)


def test_an_owner_with_a_limit_leaves_when_it_is_spent(
    home: FleetProcesses, settings: dict[str, dict[str, str]]
) -> None:
    """Two releases fit; the third round goes on without the device, and says why."""
    before = len(update_releases(home, VICTIM))
    settings[VICTIM] = {"update_epsilon": str((cost(before + 2) + cost(before + 3)) / 2)}
    home.restart(VICTIM)
    home.wait_for_devices(3)
    record = home.finish(run := home.begin(recipe({"mechanism": "local"}, quorum=0.5)))
    refused = home.events(run, "reply", device=VICTIM, outcome="refused")
    assert record["status"] == "finished", record["reason"]
    assert [row["replies"] for row in record["history"]] == [3, 3, 2]
    assert len(releases(home, VICTIM, run)) == 2
    assert len(refused) == 1
    assert "update_epsilon" in refused[0]["reason"]


def test_a_recipe_beyond_its_budget_is_refused_before_a_run_exists(home: FleetProcesses) -> None:
    over, known = recipe({"mechanism": "central", "epsilon": 1.0}), home._ask("run.list")
    with pytest.raises(Exception, match="the recipe's budget is 1") as caught:
        home.begin(over)
    assert "privacy.noise_multiplier to at least" in getattr(caught.value, "hint", "")
    with pytest.raises(Exception, match="the recipe's budget is 1"):
        home._ask("run.check", recipe=over.model_dump(mode="json"))
    assert home._ask("run.list") == known

"""What travels over a real broker by method, and that the run ends in the simulator's bits.

Experts that a device does not use, layers that it has, and weights that are its own are not sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from edgefed.algorithms.interface.base import State
from edgefed.algorithms.matched.fedma_records import (
    ATOMS,
    COUNTS,
    LAYER,
    WEIGHTS,
    MatchedNetwork,
    atoms_of,
    part,
    widths_of,
)
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.storage.run_store import Store
from edgefed.process.clock import SystemClock
from edgefed.simulator.local_fleet import device_names
from edgefed.simulator.run import Simulation
from edgefed.wire.messages import Task
from edgefed.wire.tensors import digest, pack
from tests.faults.fleet_processes import FLEET, FleetProcesses, fleet
from tests.faults.traffic.traffic_meter import Meter

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

DEVICES = device_names(4)
HOLDOUT = 0.2
HEADER = 400
"""Most bytes of a blob's header."""


def recipe(rounds: int, **tables: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "sent",
            "seed": 3,
            "data": {"name": "digits", "limit": 400, "partition": "classes"},
            "training": {"batch_size": 8, "learning_rate": 0.1},
            "rounds": {
                "count": rounds,
                "cohort": len(DEVICES),
                "lost_grace": "deadline",
                "quorum": 1.0,
                "min_devices": len(DEVICES),
            },
            "evaluation": {"on": "devices"},
            "wire": {"downlink": "fp32", "uplink": "int8"},
            "simulation": {"devices": len(DEVICES), "holdout": HOLDOUT},
            **tables,
        }
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetProcesses]:
    """The fleet of all tests: every recipe deals out the same samples."""
    with fleet(tmp_path_factory.mktemp("home"), recipe(1), holdout=HOLDOUT) as made:
        yield made


def metered(home: FleetProcesses, plan: Recipe) -> tuple[dict[str, Any], Meter]:
    """Return the row of a run that has finished, and what was sent."""
    meter = Meter(home.address, FLEET)
    try:
        record = home.finish(home.begin(plan))
    finally:
        meter.close()
    assert record["status"] == "finished", record["reason"]
    return record, meter


# -- experts ---------------------------------------------------------------------------------------

K = 4
EXPERT = 4 * (64 * 8 + 8 + 8 * 10 + 10)
TABLE = 4 * 10 * K


def test_devices_get_the_experts_that_they_use(home: FleetProcesses, tmp_path: Path) -> None:
    own = {"experts": K, "prune": 0.9, "table_learning_rate": 0.3, "server_learning_rate": 0.05}
    plan = recipe(
        3,
        model={"name": "mlp", "hidden": [8]},
        algorithm={"name": "fedmoe", **own},
        evaluation={"every": 0},
    )
    record, meter = metered(home, plan)
    virtual = Simulation(plan, tmp_path / "sim", SystemClock()).run().record
    assert record["weights_digest"] == virtual.weights_digest
    with closing(Store(tmp_path / "sim")) as store:
        last, same = record["history"][-1], store.rounds(virtual.run)[-1]
    for name in ("device_accuracy", "accuracy_known", "loss_known", "devices_known"):
        assert last[name] == same[name]

    trained = [task for task in meter.tasks if task.question == "fit"]
    assert len(trained) == 3 * len(DEVICES)
    for task in trained:
        experts = [name for name in task.blobs if name != "table"]
        assert experts == [f"expert-{number}" for number in task.params["experts"]]
        for name in experts:
            assert EXPERT < task.blobs[name].size < EXPERT + HEADER
        assert TABLE < task.blobs["table"].size < TABLE + HEADER
    assert any(len(task.blobs) < K + 1 for task in trained), "unused experts are not sent"


# -- personal weights ------------------------------------------------------------------------------

SHARED = 4 * (64 * 16 + 16 * 10)
PERSONAL = 4 * (16 + 10)
"""Bytes of the floats in each blob of the network 64-16-10."""


def test_personal_weights_are_sent_once_to_each_device_and_never_back(
    home: FleetProcesses, tmp_path: Path
) -> None:
    own = {"model": {"name": "mlp", "hidden": [16]}, "personal": {"weights": ["*.bias"]}}
    plan = recipe(3, **own)
    record, meter = metered(home, plan)
    virtual = Simulation(plan, tmp_path / "sim", SystemClock()).run().record
    assert record["weights_digest"] == virtual.weights_digest

    trained = [task for task in meter.tasks if task.question == "fit"]
    assert {tuple(sorted(task.blobs)) for task in trained} == {("personal-start", "weights")}
    assert len({task.blobs["personal-start"].digest for task in trained}) == 1
    start = meter.ways("personal-start")
    assert len({task.blobs["weights"].digest for task in trained}) == 3
    for task in trained:
        assert SHARED < task.blobs["weights"].size < SHARED + HEADER
        assert PERSONAL < task.blobs["personal-start"].size < PERSONAL + HEADER
    wanted = [device for device, digest in meter.needs if digest in start]
    assert sorted(wanted) == list(DEVICES)


# -- matched averaging -----------------------------------------------------------------------------

STEPS = 3


def matched(rounds: int) -> Recipe:
    return recipe(
        rounds,
        model={"name": "mlp", "hidden": [8, 6]},
        algorithm={"name": "fedma", "gamma": 20.0},
        evaluation={"every": 0},
        wire={},
    )


def simulated(folder: Path, rounds: int) -> tuple[str, State]:
    """Return the digest and the last state of a simulated run."""
    record = Simulation(matched(rounds), folder, SystemClock()).run().record
    with closing(Store(folder)) as store:
        checkpoint = store.checkpoint(record.run)
    assert checkpoint is not None
    return record.weights_digest, checkpoint.state


def test_layers_are_sent_once_and_each_device_gets_its_own_assignments(
    home: FleetProcesses, tmp_path: Path
) -> None:
    record, meter = metered(home, matched(2))
    asked = home.events(record["run"], "exchange", phase="broadcast", round=1)
    assert record["weights_digest"] == simulated(tmp_path / "sim", 2)[0]
    assert [event["detail"] for event in asked] == ["fc1, 1 of 3", "fc2, 2 of 3", "out, 3 of 3"]

    tasks = {(each.round, each.params["step"], each.device): each for each in meter.tasks}
    assert len(tasks) == 2 * STEPS * len(DEVICES)
    _, state = simulated(tmp_path / "one", 1)
    for device in DEVICES:
        start = tasks[2, 0, device]
        assert {role: ref.digest for role, ref in start.blobs.items()} == sent(state, device)
        assert start.params["widths"] == widths_of(state.groups[COUNTS])
    once_per_device(meter, list(tasks.values()))


def sent(state: State, device: str) -> dict[str, str]:
    """Return the blobs of the next start: the global layers, and the device's own assignments."""
    network = MatchedNetwork.of(state)
    arrays = {
        f"{LAYER}-{number}": part(state.groups[WEIGHTS], step.weights)
        for number, step in enumerate(network.steps)
    }
    own = atoms_of(state, ATOMS, device)
    assert sorted(own) == ["fc1", "fc2"]
    return {role: digest(pack(each)) for role, each in {**arrays, ATOMS: own}.items()}


def once_per_device(meter: Meter, tasks: Sequence[Task]) -> None:
    """Check that no device fetched a layer twice, though every later step names it."""
    layers = {
        ref.patches[0].blob if ref.patches else ref.digest
        for task in tasks
        for role, ref in task.blobs.items()
        if role.startswith(LAYER)
    }
    assert len(layers) == 3 * STEPS - 1, "initial ones, those of round 1, and two of round 2"
    fetched = Counter(need for need in meter.begun if need[1] in layers)
    assert fetched
    assert set(fetched.values()) == {1}

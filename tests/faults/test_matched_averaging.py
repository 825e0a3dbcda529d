"""FedMA over a real broker: the simulator's bits, though a device is killed within a layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from edgefed.algorithms.base import State
from edgefed.algorithms.fedma_records import (
    ATOMS,
    COUNTS,
    LAYER,
    WEIGHTS,
    MatchedNetwork,
    atoms_of,
    part,
    widths_of,
)
from edgefed.clock import SystemClock
from edgefed.config.recipe import Recipe
from edgefed.coordinator.store import Store
from edgefed.simulator.local_fleet import device_names
from edgefed.simulator.run import Simulation
from edgefed.wire.messages import Task
from edgefed.wire.tensors import digest, pack
from tests.faults.fleet_processes import FLEET, fleet
from tests.faults.traffic_meter import Meter
from tests.faults.traffic_recorder import Spy

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

DEVICES, STEPS = 8, 3
VICTIM = "device-03"


def recipe(rounds: int) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "matched",
            "seed": 3,
            "model": {"name": "mlp", "hidden": [8, 6]},
            "algorithm": {"name": "fedma", "gamma": 20.0},
            "data": {"name": "digits", "limit": 480, "partition": "dirichlet"},
            "training": {"batch_size": 8, "learning_rate": 0.1},
            "rounds": {
                "count": rounds,
                "cohort": DEVICES,
                "lost_grace": "deadline",
                "quorum": 1.0,
                "min_devices": DEVICES,
            },
            "evaluation": {"every": 0},
            "simulation": {"devices": DEVICES},
        }
    )


def simulated(folder: Path, rounds: int) -> tuple[str, State]:
    """Return the digest and the last state of a simulated run."""
    record = Simulation(recipe(rounds), folder, SystemClock()).run().record
    with closing(Store(folder)) as store:
        checkpoint = store.checkpoint(record.run)
    assert checkpoint is not None
    return record.weights_digest, checkpoint.state


def test_a_device_killed_in_the_second_layer_ends_in_the_simulators_bits(tmp_path: Path) -> None:
    with fleet(tmp_path / "home", recipe(2)) as home:
        spy, meter = Spy(home.address, FLEET), Meter(home.address, FLEET)
        try:
            run = home.begin()
            spy.at(1, "training", VICTIM, lambda: home.kill(VICTIM), question=LAYER, step=1)
            home.start(VICTIM)
            record = home.finish(run)
            asked = home.events(run, "exchange", phase="broadcast", round=1)
        finally:
            spy.close()
            meter.close()
    assert record["status"] == "finished", record["reason"]
    assert record["weights_digest"] == simulated(tmp_path / "sim", 2)[0]
    assert [event["detail"] for event in asked] == ["fc1, 1 of 3", "fc2, 2 of 3", "out, 3 of 3"]

    tasks = {(each.round, each.params["step"], each.device): each for each in meter.tasks}
    assert len(tasks) == 2 * STEPS * DEVICES
    _, state = simulated(tmp_path / "one", 1)
    for device in device_names(DEVICES):
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

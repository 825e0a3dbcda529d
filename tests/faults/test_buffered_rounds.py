"""Buffered rounds over MQTT, with kills; each run is repeated by its order, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from edgefed.config.recipes.recipe import EvaluationSection, Recipe
from edgefed.coordinator.exchanges.buffered_answers import settled_in
from edgefed.coordinator.exchanges.recorded_order import RecordedOrder
from edgefed.coordinator.storage.run_store import Store
from edgefed.process.clock import SystemClock
from edgefed.simulator.run import Simulation
from tests.faults.fleet_processes import FLEET, FleetProcesses, begin_watched, fleet
from tests.faults.traffic_recorder import Spy

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

ROUNDS = 10
HOLDOUT = 0.2


def recipe(uplink: str = "int8", **rounds: object) -> Recipe:
    tables = {
        "name": "buffered",
        "seed": 7,
        "model": {"name": "mlp", "hidden": [400]},
        "data": {"partition": "iid"},
        "training": {"epochs": 2, "batch_size": 8, "learning_rate": 0.05},
        "rounds": {
            "count": ROUNDS,
            "mode": "buffered",
            "buffer": 2,
            "min_devices": 4,
            "max_staleness": 3,
            "deadline": 60,
            **rounds,
        },
        "wire": {"uplink": uplink, "downlink": "int8"},
        "simulation": {"devices": 4, "holdout": HOLDOUT},
        "evaluation": {"on": "both"},
    }
    return Recipe.model_validate(tables)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetProcesses]:
    with fleet(tmp_path_factory.mktemp("buffered"), recipe(), holdout=HOLDOUT) as processes:
        yield processes


def order_of(home: FleetProcesses, run: str) -> tuple[RecordedOrder, list[dict[str, object]]]:
    with closing(Store(home.folder / "state" / "coordinator" / FLEET)) as store:
        rows = store.rounds(run, details=True)
    return RecordedOrder.of(rows), rows


def repeated(home: FleetProcesses, run: str, made: Recipe, folder: Path) -> str:
    """Return the digest of a simulation in a run's order."""
    order, _ = order_of(home, run)
    ended = Simulation(made, folder, SystemClock(), order=order).run().record
    assert ended.status == "finished", ended.reason
    return ended.weights_digest


def test_kills_lose_no_answer_and_merge_none_twice(home: FleetProcesses, tmp_path: Path) -> None:
    made = recipe(min_devices=4, lost_grace=30)
    spy = Spy(home.address, FLEET)
    try:
        run = begin_watched(home, made)
        for number, victim in ((2, "coordinator"), (4, "device-01"), (6, "broker")):
            spy.at(number, "training", "device-01", partial(home.kill, victim), question="fit")
            home.start(victim)
        record = home.finish(run)
    finally:
        spy.close()
    assert record["status"] == "finished", record["reason"]
    _, rows = order_of(home, run)
    merged = [
        (s.device, s.number) for row in rows for s in settled_in(row) if s.outcome == "merged"
    ]
    assert len(merged) == len(set(merged)) == 2 * ROUNDS
    assert rows[-1]["device_accuracy"] is not None
    assert repeated(home, run, made, tmp_path) == record["weights_digest"]


def test_a_lost_device_is_given_up_after_its_grace_and_asked_again_when_it_is_back(
    home: FleetProcesses, tmp_path: Path
) -> None:
    made = recipe("fp32", lost_grace=0.5, count=44, max_staleness=1000)
    made = made.model_copy(update={"evaluation": EvaluationSection(on="both", every=22)})
    spy = Spy(home.address, FLEET)
    try:
        run = begin_watched(home, made)
        spy.at(2, "training", "device-03", partial(home.kill, "device-03"), question="fit")
        spy.at(16, "training", "device-00", partial(home.start, "device-03"), question="fit")
        record = home.finish(run)
    finally:
        spy.close()
    assert record["status"] == "finished", record["reason"]
    _, rows = order_of(home, run)
    ends = [s.outcome for row in rows for s in settled_in(row) if s.device == "device-03"]
    assert ends.count("lost") == 1
    assert ends[-1] == "merged"
    assert repeated(home, run, made, tmp_path) == record["weights_digest"]

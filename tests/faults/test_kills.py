"""SIGKILL of every part in every phase, with two methods: the run completes with the same bits.

Together they have every kind of exchange: broadcasts and updates, blobs between devices with a
growing model and two weight sets, and label bounties, whose mixes come from the agents' private
randomness. A third run chooses devices by the losses of earlier rounds, which a coordinator reads
from its store. That other methods keep nothing outside their state is in their contract
(``edgefed.testing.algorithms``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest

from device_agent.tasks.device_store import read_releases
from edgefed.config.recipes.recipe import Recipe, SimulationSection
from edgefed.coordinator.storage.run_store import Store
from edgefed.data.base.types import Shard
from edgefed.process.clock import SystemClock
from edgefed.simulator.executors import Executor, Sequential
from edgefed.simulator.local_fleet import device_names
from edgefed.simulator.run import Simulation
from tests.faults.fleet_processes import FLEET, FleetProcesses, begin_watched, fleet
from tests.faults.traffic_recorder import Moment, Spy
from tests.programs.seeded_agent import from_seed
from tests.support.relaying import Combined, installed

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

DEVICES = device_names(3)
COORDINATOR, DEVICE, BROKER = PARTS = "coordinator", "device-01", "broker"

Kill = tuple[int, str, Moment, str]
"""A round, what the device has been asked, a moment after that, and the part that is killed."""

RELAYS: tuple[Kill, ...] = (
    (1, "pass", "upload", COORDINATOR),
    (1, "fit", "broadcast", DEVICE),
    (2, "pass", "asked", BROKER),
    (2, "fit", "training", BROKER),
    (2, "evaluate", "asked", DEVICE),
    (3, "pass", "answered", BROKER),
    (3, "fit", "answered", DEVICE),
    (4, "pass", "upload", BROKER),
    (4, "fit", "broadcast", COORDINATOR),
    (4, "evaluate", "asked", COORDINATOR),
)
"""With the two other runs, each part is killed at each moment."""

BOUNTIES: tuple[Kill, ...] = (
    (1, "label_need", "asked", DEVICE),
    (1, "label_offer", "asked", COORDINATOR),
    (1, "label_mix", "upload", DEVICE),
    # After its answer, a device that is gone is not asked the next question of the same round.
    (1, "label_mix", "answered", COORDINATOR),
    (1, "label_fill", "answered", COORDINATOR),
    # While the broker is away, the spy is as blind as the others: the next kill is a round later.
    (1, "fit", "broadcast", BROKER),
    (2, "fit", "training", DEVICE),
)
"""In one run: devices keep mixes, and exchange them once."""
CHOICE: tuple[Kill, ...] = (
    (2, "fit", "training", COORDINATOR),
    (4, "fit", "answered", COORDINATOR),
)

CASES: dict[str, tuple[Kill, ...]] = {
    "relays": RELAYS,
    "bounties": BOUNTIES,
    "choice": CHOICE,
}
ROUNDS = {"averaging": 4, "relays": 4, "bounties": 3, "choice": 5}


def recipe(method: str = "averaging", number: int = 0) -> Recipe:
    """Return a method's recipe: enough bytes and steps for a kill to find them on their way.

    With another number, sizes differ, so that no run finds the blobs of another one in a cache.
    """
    own: dict[str, Any] = {
        "averaging": {"model": {"name": "mlp", "hidden": [1000, 1000 + number]}},
        "relays": {
            "model": {"name": "mlp", "hidden": [1500 + number]},
            "algorithm": {"name": Combined.name, "size": 400_000 + number},
            "evaluation": {"on": "both"},
        },
        "choice": {
            "model": {"name": "mlp", "hidden": [300, 300 + number]},
            "selection": {"name": "power-of-choice"},
            "rounds": {"cohort": 2},
            "training": {"least_epochs": 1},
        },
        "bounties": {
            "model": {"name": "mlp", "hidden": [16 + number]},
            "labels": {"count": 3000 + number, "mix_share": 0.9, "noise": "none", "wait": 300},
        },
    }
    base: dict[str, Any] = {
        "name": "faults",
        "seed": 5,
        "data": {"classes_per_device": 1, "normalize": True},
        "training": {"epochs": 4, "batch_size": 8, "learning_rate": 0.05, "max_steps": 60},
        "rounds": {
            "count": ROUNDS[method],
            "deadline": 300,
            "lost_grace": "deadline",
            "quorum": 1.0,
            "min_devices": len(DEVICES),
        },
        "wire": {"downlink": "bf16", "uplink": "int8"},
        "simulation": {"devices": len(DEVICES), "holdout": 0.0},
    }
    merged = {name: {**base.get(name, {}), **table} for name, table in own[method].items()}
    return Recipe.model_validate({**base, **merged})


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetProcesses]:
    """The fleet of all cases: a run after another one, on parts that were killed before."""
    folder = tmp_path_factory.mktemp("home")
    own = {"share_mixes": "true", "least_mix_noise": "0"}
    settings = dict.fromkeys(DEVICES, own)
    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        installed(folder / "site", monkeypatch),
        fleet(folder, recipe(), agent="tests.programs.seeded_agent", settings=settings) as made,
    ):
        yield made


@pytest.mark.parametrize("method", CASES)
def test_killed_parts_come_back_and_the_run_ends_in_the_same_bits(
    method: str, home: FleetProcesses, tmp_path: Path
) -> None:
    kills, plan = CASES[method], recipe(method)
    done = []
    spy = Spy(home.address, FLEET)
    try:
        run = begin_watched(home, plan)
        for number, question, moment, part in kills:
            spy.at(number, moment, DEVICE, partial(home.kill, part), question=question)
            done.append((number, question, moment, part))
            home.start(part)
        record = home.finish(run)
    finally:
        spy.close()
    assert done == list(kills)
    assert record["status"] == "finished", record["reason"]
    assert record["round"] == plan.rounds.count
    assert record["weights_digest"] == simulated(plan, tmp_path / "sim")
    if method == "choice":
        check_seconds(home, run)
    check_charges(home, run, method)


def simulated(plan: Recipe, folder: Path) -> str:
    """Return the digest that a recipe ends in when nothing happens."""

    def seeded(
        shards: Sequence[Shard], settings: SimulationSection, tell: Callable[[str], None]
    ) -> tuple[Executor, str]:
        return Sequential(shards, private_randomness=from_seed), ""

    record = Simulation(plan, folder, SystemClock(), executors=seeded).run().record
    assert record.status == "finished", record.reason
    return record.weights_digest


def check_seconds(home: FleetProcesses, run: str) -> None:
    """Check that an exchange that a restart found open has no seconds, and others have."""
    with closing(Store(home.folder / "state" / "coordinator" / FLEET)) as store:
        rows = store.rounds(run, details=True)
    seconds = [[values[1] for values in row["measured"].values()] for row in rows]
    assert seconds[1] == [None, None], "its coordinator was killed"
    assert all(each is not None and each > 0 for each in seconds[0] + seconds[2])


def check_charges(home: FleetProcesses, run: str, method: str) -> None:
    """Check that each device notes all that it sends to each other one, and nothing twice."""
    times = {"relays": ROUNDS["relays"], "bounties": 1, "choice": 0}[method]
    for device in DEVICES:
        found = read_releases(home.folder / "state" / "agents" / FLEET / device, device)
        mixes = [each for each in found if each.entry["kind"] == "mixes" and each.run == run]
        others = [other for other in DEVICES if other != device]
        assert sorted(each.entry["receiver"] for each in mixes) == sorted(others * times)
        assert len({each.exchange for each in mixes}) == times
        assert len({(each.exchange, each.entry["receiver"]) for each in mixes}) == len(mixes)
        labels = [each.exchange for each in found if each.entry["kind"] == "labels"]
        assert labels.count("") == 1, "noted once, however often it started"
        assert len(labels) == len(set(labels))
    relayed = home.folder / "state" / "coordinator" / FLEET / "relays"
    assert list(relayed.iterdir()) == [], "the coordinator drops what it passed on"


def test_each_part_is_killed_at_each_moment() -> None:
    kills = {(moment, part) for table in CASES.values() for _, _, moment, part in table}
    assert kills == set(product(get_args(Moment), PARTS))

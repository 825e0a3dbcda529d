"""Averaged data over a real broker: shared once, by willing devices, with the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from device_agent.tasks.device_store import read_releases
from edgefed.config.recipes.recipe import Recipe, SimulationSection
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.data.base.types import Shard
from edgefed.files.samples import Samples
from edgefed.process.clock import SystemClock
from edgefed.sharing.policy import Policy
from edgefed.simulator.executors import Executor, Sequential
from edgefed.simulator.local_fleet import device_names
from edgefed.simulator.run import Simulation
from tests.faults.fleet_processes import FLEET, FleetProcesses, dealt, fleet, wait_until
from tests.faults.traffic.traffic_meter import Meter

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]


def recipe(devices: int, *, algorithm: str = "fedmix", **rounds: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "averages",
            "seed": 7,
            "model": {"name": "mlp", "hidden": [16]},
            "algorithm": {"name": algorithm},
            "data": {"partition": "classes", "classes_per_device": 2, "limit": 400},
            "training": {"batch_size": 8, "learning_rate": 0.05},
            "rounds": {
                "count": 3,
                "lost_grace": "deadline",
                "quorum": 1.0,
                "min_devices": devices,
                **rounds,
            },
            "wire": {"downlink": "bf16", "uplink": "int8"},
            "simulation": {"devices": devices},
        }
    )


def simulated(
    folder: Path, plan: Recipe, policies: Mapping[str, Policy] | None = None
) -> RunRecord:
    """Return the row of a simulation in which devices have these policies."""
    chosen = policies or {}

    def make(
        shards: Sequence[Shard], section: SimulationSection, tell: Callable[[str], None]
    ) -> tuple[Executor, str]:
        names = device_names(len(shards))
        pairs = zip(names, shards, strict=True)
        return Sequential([replace(s, policy=chosen.get(n, s.policy)) for n, s in pairs]), ""

    record = Simulation(plan, folder, SystemClock(), executors=make).run().record
    assert record.status == "finished", record.reason
    return record


def finished(home: FleetProcesses, run: str) -> dict[str, Any]:
    record = home.finish(run)
    assert record["status"] == "finished", record["reason"]
    return record


def mean_exchanges(home: FleetProcesses, run: str) -> set[str]:
    """Return the ids of the exchanges that asked for averages."""
    return {each["exchange"] for each in home.events(run, "exchange", question="mean")}


def replies(
    home: FleetProcesses, run: str, question: str, outcome: str
) -> dict[str, dict[str, Any]]:
    """Return the last reply to a question, with an outcome, by device."""
    found = home.events(run, "reply", question=question, outcome=outcome)
    return {reply["device"]: reply for reply in found}


FOUR = device_names(4)
Settings = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def settings() -> Settings:
    """What owners have set, for the next start of their agents."""
    return {}


@pytest.fixture(scope="module")
def home(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetProcesses]:
    """A fleet whose owners share at first."""
    with fleet(tmp_path_factory.mktemp("home"), recipe(4), settings=settings) as made:
        yield made


def test_averages_go_up_once_and_come_down_once(home: FleetProcesses, tmp_path: Path) -> None:
    meter = Meter(home.address, FLEET)
    try:
        run = home.begin()
        record = finished(home, run)
    finally:
        meter.close()
    assert len(mean_exchanges(home, run)) == 1
    shared = home.events(run, "reply", question="mean", outcome="accepted")
    assert len(home.events(run, "reply", question="fit", outcome="accepted")) == 12
    assert sorted(reply["device"] for reply in shared) == list(FOUR)
    sizes = [len(shard.train) for shard in dealt(home.recipe).values()]
    assert sorted(reply["shared"]["group"] for reply in shared) == sorted(sizes)
    assert {reply["shared"]["entries"] for reply in shared} == {1}
    assert [kinds_released(home, name) for name in FOUR] == [["labels", "means"]] * 4

    assert len(meter.blobs("averaged")) == 1
    averaged = meter.ways("averaged")
    assert {task.device for task in meter.tasks if "averaged" in task.blobs} == set(FOUR)
    assert {task.round for task in meter.tasks if "averaged" in task.blobs} == {1, 2, 3}
    pieces = [piece for piece in meter.pieces if piece.digest in averaged]
    assert {piece.round for piece in pieces} == {1}
    # All together, or each device by itself where they did not ask at the same time.
    assert 1 <= len(pieces) <= 4
    assert sorted(device for device, blob in meter.needs if blob in averaged) == list(FOUR)
    virtual = simulated(tmp_path / "sim", home.recipe)
    assert record["weights_digest"] == virtual.weights_digest
    assert record["accuracy"] == virtual.accuracy


def kinds_released(home: FleetProcesses, device: str) -> list[str]:
    """Return the kinds of a device's releases, oldest first."""
    folder = home.folder / "state" / "agents" / FLEET / device
    return [str(each.entry["kind"]) for each in read_releases(folder, device)]


def test_who_does_not_share_says_why_and_trains_all_the_same(
    home: FleetProcesses, settings: Settings, tmp_path: Path
) -> None:
    settings |= {"device-01": {"share_means": "false"}, "device-02": {"least_group": "5000"}}
    before = {name: kinds_released(home, name) for name in FOUR}
    for name in settings:
        home.restart(name)
    home.wait_for_devices(4)
    run = home.begin()
    record = finished(home, run)
    refused = replies(home, run, "mean", "refused")
    trained = home.events(run, "reply", question="fit", outcome="accepted")
    samples = len(dealt(home.recipe)["device-02"].train)
    for name in settings:
        assert kinds_released(home, name) == before[name]
    assert {device: reply["reason"] for device, reply in refused.items()} == {
        "device-01": "it does not share averaged data (share_means = false)",
        "device-02": f"it has {samples} samples, and its policy requires 5000 for an average",
    }
    assert sorted(reply["device"] for reply in trained) == sorted(FOUR * 3)
    notes = [note["text"] for note in home.events(run, "note")]
    assert "2 of 4 devices shared averaged data: 2 entries in all" in notes
    policies = {"device-01": Policy(share_means=False), "device-02": Policy(least_group=5000)}
    virtual = simulated(tmp_path / "sim", home.recipe, policies)
    assert record["weights_digest"] == virtual.weights_digest


def test_where_nobody_shares_it_is_fedavg_to_the_bit_and_says_so(
    home: FleetProcesses, settings: Settings, tmp_path: Path
) -> None:
    for name in FOUR:
        settings[name] = {"share_means": "false"}
        home.restart(name)
    home.wait_for_devices(4)
    run = home.begin()
    record = finished(home, run)
    warnings = [note["text"] for note in home.events(run, "note", level="warning")]
    assert warnings == ["none of 4 devices shares averaged data: this is FedAvg"]
    plain = simulated(tmp_path / "plain", recipe(4, algorithm="fedavg"))
    assert record["weights_digest"] == plain.weights_digest
    sharing = simulated(tmp_path / "sharing", home.recipe)
    assert record["weights_digest"] != sharing.weights_digest


def test_a_late_device_and_one_with_new_data_are_asked_alone(tmp_path: Path) -> None:
    plan = recipe(3, min_devices=2, quorum=0.5)
    with fleet(tmp_path / "home", plan, absent={"device-02"}) as home:
        run = home.begin(paused=True)
        home.step(run)
        home.step(run)
        assert replies(home, run, "mean", "accepted").keys() == {"device-00", "device-01"}

        home.start("device-02")
        wait_until(lambda: "device-02" in home.devices(), "the late device", home.logs)
        home.step(run)
        assert replies(home, run, "mean", "accepted").keys() == set(device_names(3))

        before = dealt(plan)["device-00"]
        fewer = Samples(before.train.inputs[:50], before.train.targets[:50])
        home.kill("device-00")
        home.give("device-00", replace(before, train=fewer))
        home.start("device-00")

        def has_returned() -> bool:
            device = home.devices()["device-00"]
            return bool(device["samples"] == 50 and device["state"] == "idle")

        wait_until(has_returned, "the changed device", home.logs)
        home.resume(run)
        finished(home, run)
        asked = home.events(run, "exchange", question="mean", phase="broadcast")
        shared = home.events(run, "reply", question="mean")
    assert [(each["round"], each["asked"]) for each in asked] == [(1, 2), (2, 1), (2, 1)]
    assert [each["device"] for each in shared[2:]] == ["device-02", "device-00"]
    assert shared[-1]["shared"] == {"entries": 1, "group": 50}

"""The same recipe gives the same weights, bit for bit, on devices and in a simulation.

A demo spends most of its time on the start of its processes: one covers what a demo does by itself,
through the embedded broker, and ``test_next_steps`` has one through Mosquitto. One fleet runs all
other recipes, one after another.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgefed.cli.fleet.demo import RECIPE
from edgefed.config.fleet.settings_files import Surroundings
from edgefed.config.loading.load import load_recipe, parse_sets
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.process.clock import SystemClock
from edgefed.simulator.run import Simulation
from tests.cli.commands import edgefed
from tests.faults.fleet_processes import FleetProcesses, fleet
from tests.programs.forked_fleet import demo_here

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]


def events(real: dict[str, Any], kind: str, **wanted: Any) -> list[dict[str, Any]]:
    """Return the events of a kind that hold what is wanted, of a demo's run."""
    log = Path(real["model"]).with_name("events.jsonl").read_text()
    found = [json.loads(line) for line in log.splitlines()]
    return [each for each in found if each["kind"] == kind and wanted.items() <= each.items()]


def both(folder: Path, *words: str) -> dict[str, Any]:
    """Return the result of a demo once a simulation of its recipe has ended in the same."""
    real = dict(demo_here(folder, "--broker-kind", "embedded", *words, "--json").json)
    recipe = Path(real["model"]).with_name("recipe.toml")
    virtual = edgefed("--quiet", "sim", "run", recipe, "--json", state=folder).json
    for key in ("rounds", "devices", "accuracy", "weights_digest"):
        assert real[key] == virtual[key]
    assert real["rounds"] == 2
    assert len(real["weights_digest"]) == 64
    return real


def test_devices_share_averages_once_through_the_embedded_broker(tmp_path: Path) -> None:
    pytest.importorskip("amqtt", reason="the demo broker is not installed")
    words = ("--algorithm", "fedmix", "--devices", "2", "--rounds", "2", "--seed", "1")
    real = both(tmp_path, *words)
    assert len(events(real, "exchange", question="mean", phase="broadcast")) == 1
    assert len(events(real, "reply", question="mean", outcome="accepted")) == 2
    assert len(events(real, "reply", question="fit", outcome="accepted")) == 4
    notes = [note["text"] for note in events(real, "note")]
    assert "2 of 2 devices shared averaged data: 2 entries in all" in notes


def recipe(*sets: str) -> Recipe:
    """Return the demo's recipe for three devices, with changes as after ``--set``."""
    few = ("simulation.devices=3", "rounds.min_devices=3", "rounds.count=2", "data.limit=300")
    parsed = parse_sets((*few, "seed=1", *sets))
    return load_recipe(RECIPE, Surroundings({}, Path(), no_config=True), sets=parsed).value


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetProcesses]:
    """A fleet whose devices hold what the demo's recipe deals out."""
    with fleet(tmp_path_factory.mktemp("three"), recipe()) as home:
        yield home


def simulated(folder: Path, plan: Recipe) -> RunRecord:
    return Simulation(plan, folder, SystemClock()).run().record


ADAM = ("training.optimizer=adam", "training.learning_rate=0.002")
ADAMW = ("training.optimizer=adamw", "training.learning_rate=0.002", "training.weight_decay=0.1")
CHANGES = {
    "bf16, adamw, schedule, clipping, smoothing and weights": (
        *("wire.uplink=bf16", "wire.downlink=bf16", *ADAMW),
        "training.schedule=cosine",
        "training.warm_up=0.2",
        "training.max_gradient_norm=0.5",
        "training.label_smoothing=0.1",
        "training.class_weights=balanced",
    ),
    "int8 and transforms of torchvision": (
        *("wire.uplink=int8", "wire.downlink=int8"),
        "images.resized_crop=0.5",
        "images.flip=true",
        "images.rand_augment=1",
        "images.brightness=0.3",
        "images.erase=0.2",
        "training.crop=1",
    ),
    "crops and flips of the data, nesterov, a schedule over the run, numbers for weights": (
        *("data.crop=1", "data.flip=true"),
        *("training.momentum=0.9", "training.nesterov=true"),
        *("training.schedule=linear", "training.schedule_over=run"),
        "training.class_weights=[1, 1, 2, 1, 1, 0.5, 1, 1, 1, 3]",
    ),
    "fedlc with adam, median and norms": (
        *("algorithm.name=fedlc", *ADAM),
        *("merging.rule=median", "checks.norm_factor=20"),
    ),
    "krum of a mixture of experts": (
        "algorithm.name=fedmoe",
        "algorithm.experts=3",
        "evaluation.on=coordinator",
        "merging.rule=krum",
        "merging.malicious=0",
    ),
    "clipping with the averages of others": (
        "algorithm.name=fedmix",
        "merging.rule=norm_clipping",
        "wire.uplink=int8",
    ),
}
"""What differs from the demo's recipe."""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest that the demo's recipe ends in."""
    return simulated(tmp_path_factory.mktemp("plain"), recipe()).weights_digest


@pytest.mark.parametrize("name", CHANGES)
def test_a_fleet_ends_as_a_simulation(
    name: str, three: FleetProcesses, plain: str, tmp_path: Path
) -> None:
    plan = recipe(*CHANGES[name])
    real = three.finish(three.begin(plan))
    virtual = simulated(tmp_path / "same", plan)
    assert real["status"] == "finished", real["reason"]
    assert (real["round"], real["devices"]) == (2, 3)
    assert real["accuracy"] == virtual.accuracy
    assert real["weights_digest"] == virtual.weights_digest
    assert real["weights_digest"] != plain

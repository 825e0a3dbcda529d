"""Devices that number their classes differently, as real agents over Mosquitto."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from broker.address import LOOPBACK, free_port
from edgefed.cli.programs.processes import Processes, running, wait_for_coordinator
from edgefed.config.values.address import Address
from tests.cli.commands import Told, edgefed, recipe_file
from tests.programs.forked_fleet import ForkedProcesses
from tests.support.generated_images import write_pictures
from tests.transport.listening import wait_until

pytestmark = pytest.mark.mosquitto

FLEET = "pictures"
CLASSES = ["dogs", "ants", "cats", "bees"]
LISTED = f"classes = {json.dumps(CLASSES)}"
UNION = 'classes = ["ants", "bees", "cats", "dogs"]'
RECIPE = """
name = "pictures"
[model]
name = "mlp"
hidden = [16]
[data]
name = "folder"
path = "all"
greyscale = true
test_share = 0.9
{listed}
[training]
learning_rate = 0.3
[rounds]
count = 6
min_devices = 3
"""


class Pictures:
    """Three devices whose numbers for the same classes differ, and a coordinator with all four."""

    def __init__(self, folder: Path, processes: Processes) -> None:
        self.folder = folder
        self.processes = processes
        # All three hold bees, which are label 1, 0 and 2 of theirs.
        self.add("alpha", ["ants", "bees", "cats"])
        self.add("beta", ["bees", "dogs"])
        self.add("gamma", ["ants", "bees", "cats", "dogs"], ["dogs", "cats", "bees", "ants"])
        write_pictures(folder / "all", ["ants", "bees", "cats", "dogs"], seed=99)
        wait_until(lambda: len(self.devices()) == 3, "devices")

    def add(self, device: str, classes: list[str], order: list[str] | None = None) -> None:
        seed = len(self.processes.agents)
        write_pictures(self.folder / device, classes, order=order or (), seed=seed)
        self.processes.start_agent(device, f"folder:{self.folder / device}?greyscale=true")

    def __call__(self, *words: str | Path) -> Told:
        return edgefed("--broker", str(self.processes.address), "--fleet", FLEET, *words)

    def recipe(self, listed: str) -> Path:
        return recipe_file(self.folder, RECIPE.format(listed=listed))

    def devices(self) -> dict[str, dict[str, Any]]:
        listed = self("device", "list", "--json").json
        return {each["device"]: each for each in listed if each["state"] != "lost"}

    def events(self, run: str, kind: str) -> list[dict[str, Any]]:
        record = self("run", "show", run, "--json").json
        lines = Path(record["folder"], "events.jsonl").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["kind"] == kind]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pictures]:
    folder = tmp_path_factory.mktemp("pictures")
    processes = ForkedProcesses(Address(LOOPBACK, free_port()), FLEET, folder / "state")
    with running(processes):
        processes.start_broker("mosquitto")
        processes.start_coordinator()
        wait_for_coordinator(processes)
        yield Pictures(folder, processes)


def test_births_carry_the_names_of_classes(fleet: Pictures) -> None:
    named = {name: device["class_names"] for name, device in fleet.devices().items()}
    assert named == {
        "alpha": ["ants", "bees", "cats"],
        "beta": ["bees", "dogs"],
        "gamma": ["dogs", "cats", "bees", "ants"],
    }


def test_the_device_list_shows_the_names_of_labels(fleet: Pictures) -> None:
    rows = {line.split()[0]: line.split() for line in fleet("device", "list").out.splitlines()}
    assert rows["alpha"][-2] == "ants,bees,cats"
    assert rows["beta"][-2] == "bees,dogs"


def test_lists_that_differ_are_refused_with_the_line_that_mends_it(fleet: Pictures) -> None:
    recipe = fleet.recipe("")
    run = fleet("--quiet", "run", "start", recipe).out.strip()
    told = fleet("run", "watch", run)
    reasons = (
        "data.classes of the recipe lists no names, and the devices' lists differ",
        "Compared with all names together: the coordinator has 'ants', 'bees', 'cats', 'dogs'",
        "alpha has 'ants', 'bees', 'cats' and lacks 'dogs'",
        "beta has 'bees', 'dogs' and lacks 'ants', 'cats'",
        "gamma has 'dogs', 'cats', 'bees', 'ants'",
    )
    told.failed(1, "data.classes", *reasons, UNION)
    assert fleet("run", "show", run, "--json").json["round"] == 0
    checked = fleet("run", "check", recipe, "--json")
    assert checked.code == 8
    found = checked.json
    assert [(each["device"], each["fits"]) for each in found["devices"]] == [
        ("alpha", False),
        ("beta", False),
        ("gamma", False),
    ]
    assert all(each["reason"] for each in found["devices"])
    assert UNION in found["problem"]["hint"]
    assert UNION in fleet("run", "check", recipe).err
    pasted = fleet("run", "check", fleet.recipe(UNION), "--json")
    assert (pasted.code, pasted.json["class_names"]) == (0, ["ants", "bees", "cats", "dogs"])


def test_devices_with_other_numbers_learn_after_one_list(fleet: Pictures) -> None:
    recipe = fleet.recipe(LISTED)
    assert fleet("run", "check", recipe).code == 0
    run = fleet("--quiet", "run", "start", recipe).out.strip()
    assert fleet("run", "watch", run).code == 0
    record = fleet("run", "show", run, "--json").json
    assert record["accuracy"] > 0.9  # chance is 0.25
    assert record["class_names"] == CLASSES
    assert record["devices"] == 3
    with safe_open(Path(record["folder"], "model.safetensors"), "np") as model:
        assert json.loads(model.metadata()["classes"]) == CLASSES
    assert fleet.events(run, "run")[-1]["class_names"] == CLASSES
    assert all(row["replies"] == 3 for row in record["history"])


def test_a_device_with_another_class_is_left_out_by_name(fleet: Pictures) -> None:
    recipe = fleet.recipe(LISTED)
    run = fleet("--quiet", "run", "start", recipe, "--paused").out.strip()
    wait_until(lambda: fleet("run", "show", run, "--json").json["status"] == "paused", "the pause")
    fleet.add("delta", ["bees", "wasps"])
    wait_until(lambda: "delta" in fleet.devices(), "delta")
    checked = fleet("run", "check", recipe)
    assert checked.code == 8
    assert "it has classes that data.classes does not list: 'wasps'" in checked.out
    assert "1 of 4 devices does not fit: delta." in checked.err
    assert fleet("run", "resume", run).code == 0
    assert fleet("run", "watch", run).code == 0
    assert fleet.events(run, "note")[0]["text"] == (
        "delta is excluded: it has classes that data.classes does not list: 'wasps'"
    )
    asked = {event["device"] for event in fleet.events(run, "reply")}
    assert asked == {"alpha", "beta", "gamma"}
    tells_why_delta_is_excluded(fleet, run)


def tells_why_delta_is_excluded(fleet: Pictures, run: str) -> None:
    """The state and its reason are wherever the device is shown."""
    why = "it has classes that data.classes does not list: 'wasps'"
    status = " ".join(fleet("status").out.split())
    assert f"take part 3 of 4; delta is excluded: {why}" in status
    shown = fleet("device", "show", "delta", "--json").json
    assert (shown["state"], shown["excluded"]) == ("excluded", why)
    listed = {line.split()[0]: line for line in fleet("device", "list").out.splitlines()}
    assert listed["delta"].split()[1] == "excluded"
    assert why in listed["delta"]
    assert listed["alpha"].split()[1] in ("idle", "done")
    summary = fleet("run", "report", run, "--out", fleet.folder / "report.html")
    assert summary.code == 0
    page = (fleet.folder / "report.html").read_text()
    assert "excluded because" in page
    assert unescape(page).count(why) >= 2  # beside the device, and in the events

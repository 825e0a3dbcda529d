"""``edgefed label`` with a real coordinator, two real devices, and a double that has bounties."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edgefed.config.loading.write import to_toml
from edgefed.config.recipes.recipe import Recipe
from tests.cli.commands import Told, edgefed, recipe_file
from tests.faults.fleet_processes import FLEET, FleetProcesses, fleet, wait_until
from tests.support.lacking import COUNT, LABELS, MIXES, WANTED, installed

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

Operator = Callable[..., Told]


@pytest.fixture(autouse=True, scope="module")
def _installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, installed(tmp_path_factory.mktemp("site"), patch):
        yield


def plan() -> Recipe:
    """Return a recipe whose devices hold every label, so only the double has bounties."""
    return Recipe.model_validate(
        {
            "name": "labels",
            "seed": 7,
            "model": {"name": "mlp", "hidden": [8]},
            "algorithm": {"name": "lacking"},
            "labels": WANTED,
            "data": {"name": "digits", "limit": 300, "partition": "iid"},
            "training": {"learning_rate": 0.05},
            "rounds": {"count": 3, "quorum": 1.0, "min_devices": 2},
            "simulation": {"devices": 2},
        }
    )


def paused(home: FleetProcesses) -> str:
    """Start a run and return its id once it waits with all bounties open."""
    run = home.begin(paused=True)
    wait_until(lambda: home.record(run)["status"] == "paused", "the pause", home.logs)
    assert [row["status"] for row in home.bounties()] == ["open"] * (2 * LABELS)
    return run


def operator(home: FleetProcesses) -> Operator:
    return lambda *words: edgefed("--broker", str(home.address), "--fleet", FLEET, *words)


def rows(told: Told) -> list[list[str]]:
    assert (told.code, told.err) == (0, "")
    return [line.split() for line in told.out.splitlines()]


def test_bounties_are_seen_ordered_and_cancelled(tmp_path: Path) -> None:
    with fleet(tmp_path / "home", plan()) as home:
        command = operator(home)
        wait_until(lambda: len(home.devices()) == 2, "the devices")
        _without_a_run(command)
        run = paused(home)
        _at_the_start(command)
        _orders(command, run)
        while not any(row["received"] for row in home.bounties()):
            home.step(run)
        _after_a_round(command, run)
        _refusals(command)
        home.resume(run)
        home.finish(run)
        command("label", "cancel", "--all").failed(2, "run.not_active", run, "is finished")
        state = home.folder / "state"
        _local(command, run, state)
        _without_labels(command, run, tmp_path)


def _without_a_run(command: Operator) -> None:
    for words in (("bounties",), ("budget",)):
        told = command("label", *words)
        assert (told.code, told.out, told.err) == (
            0,
            "",
            "No run yet. Start one: edgefed run start\n",
        )
        assert command("label", *words, "--json").json == []
    told = command("label", "skew")
    assert [line.split()[0] for line in told.out.splitlines()] == [
        *("DEVICE", "device-00", "device-01", "all")
    ]
    assert told.err.startswith("No run yet.")
    assert command("label", "skew", "--json").json["run"] is None
    command("label", "cancel", "--all").failed(5, "run.unknown", "no run yet")


def _at_the_start(command: Operator) -> None:
    found = command("label", "bounties", "--json").json
    assert [(row["device"], row["label"], row["name"]) for row in found] == [
        (device, label, str(label))
        for device in ("device-00", "device-01")
        for label in range(LABELS)
    ]
    table = rows(command("label", "bounties"))
    assert table[0] == [
        *("DEVICE", "LABEL", "STATUS", "COUNT", "MIXES", "OFFERED", "RECEIVED", "NOISE")
    ]
    assert table[1] == ["device-00", "0", "open", str(COUNT), str(MIXES), "0", "0", "0"]
    assert len(table) == 1 + 2 * LABELS


def _orders(command: Operator, run: str) -> None:
    told = command("label", "cancel", "--device", "device-01", "--label", "1")
    assert (told.code, told.out) == (0, "")
    assert told.err == f"{run}: cancel 1 bounty (1 open), before its next exchange\n"
    assert command("label", "cancel", run, "--label", "2", "--json").json == {
        "run": run,
        "number": 2,
        "action": "cancel",
        "device": "",
        "label": 2,
        "bounties": {"open": 2, "closed": 0, "cancelled": 0},
    }
    told = command("label", "open", "--device", "device-01", "--label=2", "--quiet")
    assert (told.code, told.out, told.err) == (0, "", "")
    assert "3 open" in command("label", "open", "--device", "device-00").err


def _after_a_round(command: Operator, run: str) -> None:
    found = {
        (row["device"], row["label"]): (row["status"], row["received"], row["noise"])
        for row in command("label", "bounties", run[:6], "--json").json
    }
    assert found["device-01", 1] == ("cancelled", 0, COUNT)
    assert found["device-01", 2] == ("open", 1, 0), "cancelled and opened again"
    assert set(found.values()) == {("cancelled", 0, COUNT), ("open", 1, 0)}
    assert rows(command("label", "budget"))[1] == [
        *("device-00", "3", "97", "unbounded", "no", "limit")
    ]
    assert command("label", "budget", "--json").json[1] == {
        "device": "device-01",
        "released": 2,
        "mixes_left": 98,
        "epsilon": None,
        "epsilon_left": None,
        "shares": True,
    }
    skew = command("label", "skew", "--json").json
    one = skew["devices"][1]
    assert one["supplements"] == [0, COUNT, *[0] * 8]
    assert one["after"] == [a + b for a, b in zip(one["before"], one["supplements"], strict=True)]
    assert one["share_before"] == max(one["before"]) / sum(one["before"])
    assert one["share_after"] == max(one["after"]) / sum(one["after"])
    assert skew["overall"]["supplements"] == one["supplements"]
    assert skew["labels"] == [str(label) for label in range(10)]
    table = rows(command("label", "skew"))
    assert f"+{COUNT}" in table[2]
    assert f"+{COUNT}" not in table[1]
    assert table[3][0] == "all"
    shown = rows(command("label", "skew", "--device", "device-01"))
    assert shown[2] == ["1", str(one["before"][1]), str(COUNT), str(one["after"][1])]
    devices = {row["device"]: row for row in command("device", "list", "--json").json}
    told = [
        (row["open_bounties"], row["received_mixes"], row["noise_samples"])
        for row in devices.values()
    ]
    assert told == [(3, 3, 0), (2, 2, COUNT)]
    name, *verdict = rows(command("status"))[-1]
    assert (name, verdict[:2]) == ("bounties", ["mixes", "fill"])
    assert verdict[-4:] == ["5", "open,", "1", "cancelled"]


def _refusals(command: Operator) -> None:
    for words in ((), ("--all", "--device", "device-00"), ("--all", "--label", "1")):
        command("label", "cancel", *words).failed(2, "usage", "--all")
    command("label", "cancel", "--device", "nobody").failed(5, "device.unknown", "nobody")
    command("label", "open", "--label", "10").failed(5, "label.unknown", "'10'")
    command("label", "open", "--label", "cat").failed(5, "label.unknown", "'cat'")
    command("label", "open", "--label", "9").failed(5, "label.bounty", "label bounty for 9")
    command("label", "open", "r-9999", "--all").failed(5, "run.unknown", "r-9999")
    command("label", "skew", "--device", "nobody").failed(5, "device.unknown", "nobody")
    command("label", "bounties", "r-9999").failed(5, "run.unknown", "r-9999", "--local")


def _local(command: Operator, run: str, state: Path) -> None:
    for words in (("bounties",), ("budget",), ("skew",), ("skew", "--device", "device-00")):
        local = edgefed("label", *words, run, "--local", "--json", state=state)
        assert local.json == command("label", *words, "--json").json
    statuses = {row["status"] for row in command("label", "bounties", "--json").json}
    assert statuses == {"closed", "cancelled"}


def _without_labels(command: Operator, run: str, folder: Path) -> None:
    values: dict[str, Any] = {**plan().model_dump(), "labels": {}, "algorithm": {"name": "fedavg"}}
    path = recipe_file(folder, to_toml(type(plan()).model_validate(values)))
    other = command("--quiet", "run", "start", path, "--paused").out.strip()
    wait_until(lambda: command("run", "show", other, "--json").json["status"] == "paused", "pause")
    told = command("label", "bounties")
    assert (told.code, told.out) == (0, "")
    assert (
        told.err
        == f"Run {other} gives no supplements: its recipe's [labels] table asks for none.\n"
    )
    assert "gives no supplements" in command("label", "skew").err
    command("label", "open", "--all").failed(2, "label.off", other, "labels.supplement")
    told = command("label", "bounties", run)
    told.failed(5, "run.unknown", other, f"edgefed label bounties {run} --local")
    assert json.loads(command("label", "budget", "--json").out) == []


def test_a_simulation_tells_its_bounties_without_a_coordinator(tmp_path: Path) -> None:
    path = recipe_file(tmp_path, to_toml(plan()))
    run = edgefed("--quiet", "sim", "run", path, "--json", state=tmp_path).json["run"]
    found = edgefed("label", "bounties", "--local", "--json", state=tmp_path).json
    assert {(row["status"], row["received"], row["noise"]) for row in found} == {
        ("closed", MIXES, COUNT - MIXES)
    }
    skew = edgefed("label", "skew", run, "--local", "--json", state=tmp_path).json
    assert [row["supplements"][:LABELS] for row in skew["devices"]] == [[COUNT] * LABELS] * 2
    edgefed("label", "skew", "r-9", "--local", state=tmp_path).failed(5, "run.unknown", "r-9")

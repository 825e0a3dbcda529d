"""Models rolled out to real agents over a real broker, while processes are killed."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.data.base.types import Shard
from edgefed.errors import EdgeFedError
from edgefed.files.samples import Samples
from edgefed.simulator.local_fleet import device_names
from tests.cli.commands import edgefed
from tests.faults.fleet_processes import FLEET, FleetProcesses, dealt, fleet, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

FIRST, SECOND, TURNED, OFF = device_names(4)


def recipe(rate: float, **tables: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "seed": 7,
            "model": {"name": "mlp", "hidden": [16]},
            "data": {"name": "digits", "limit": 600, "partition": "iid"},
            "training": {"learning_rate": rate, "epochs": 5, "batch_size": 8},
            "rounds": {"count": 1, "min_devices": 4},
            "evaluation": {"on": "coordinator"},
            "simulation": {"devices": 4},
            **tables,
        }
    )


def turned(shard: Shard) -> Shard:
    """Return a device's data whose held-out samples have other labels."""
    test = shard.test
    return replace(shard, test=Samples(test.inputs, (test.targets + 1) % 10, scale=test.scale))


def models(home: FleetProcesses, device: str) -> Path:
    return home.folder / "state" / "agents" / FLEET / device / "models"


def current(home: FleetProcesses, device: str) -> dict[str, Any]:
    """Read a device's current model as an inference program does; it must be whole."""
    folder = (models(home, device) / "current").resolve()
    told: dict[str, Any] = json.loads((folder / "model.json").read_text())
    for name in told["files"].values():
        assert (folder / name).stat().st_size > 0
    assert hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest() == told["digest"]
    return told


@contextmanager
def inference_program(home: FleetProcesses, device: str) -> Iterator[list[str]]:
    """Read a device's current model again and again; yield the rollouts that it saw."""
    seen: list[str] = []
    problems: list[Exception] = []
    end = threading.Event()

    def read() -> None:
        while not end.wait(0.02):
            if (models(home, device) / "current").is_symlink():
                try:
                    seen.append(current(home, device)["rollout"])
                except Exception as error:
                    problems.append(error)
                    return

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield seen
    finally:
        end.set()
        thread.join()
    assert not problems, problems


def status(home: FleetProcesses) -> dict[str, Any]:
    return dict(home._ask("model.status"))


def _begun(home: FleetProcesses) -> bool:
    try:
        return bool(status(home)["rollout"])
    except EdgeFedError:  # no rollout yet
        return False


def outcomes(home: FleetProcesses, count: int) -> dict[str, str]:
    """Wait for so many answers to the newest rollout and return them."""
    wait_until(lambda: len(status(home)["answers"]) == count, f"{count} answers", home.logs)
    return {device: each["outcome"] for device, each in status(home)["answers"].items()}


def ended(home: FleetProcesses) -> dict[str, Any]:
    wait_until(lambda: status(home)["status"] != "active", "the rollout's end", home.logs)
    return status(home)


def roll_out(home: FleetProcesses, run: str, *shares: float, stop_at: float = 1.0) -> str:
    stages = list(shares or (0.25, 1.0))
    begun = home._order("model.rollout", run=run, shares=stages, stop_at=stop_at)
    return str(begun["rollout"])


def test_models_are_tested_swapped_in_and_rolled_back(tmp_path: Path) -> None:
    settings = {name: {"models": "auto"} for name in (FIRST, SECOND, TURNED)}
    wrong = {TURNED: turned(dealt(recipe(1e-6), 0.3)[TURNED])}
    home_folder = tmp_path / "home"
    with (
        fleet(home_folder, recipe(1e-6), holdout=0.3, settings=settings, shards=wrong) as home,
        inference_program(home, FIRST) as seen,
    ):
        home.wait_for_devices(4)
        wishes = {"when": "end", "stages": (0.25, 1.0), "stop_at": 1.0}
        untrained, trained = home.begin(recipe(1e-6, rollout=wishes)), ""
        assert home.finish(untrained)["status"] == "finished", home.logs()
        wait_until(lambda: _begun(home), "the rollout of the recipe", home.logs)
        trained = home.begin(recipe(0.2))
        assert home.finish(trained)["status"] == "finished", home.logs()

        begun = str(status(home)["rollout"])
        home.kill("coordinator")
        home.start("coordinator")
        assert ended(home)["status"] == "finished", home.logs()
        installed = dict.fromkeys((FIRST, SECOND, TURNED), "installed")
        assert outcomes(home, 4) == {**installed, OFF: "declined"}
        assert not models(home, OFF).joinpath("current").exists()

        home.kill(SECOND)
        home.wait_for_devices(3)
        better = roll_out(home, trained)
        home.kill(FIRST)
        home.start(FIRST)
        assert ended(home)["status"] == "finished", home.logs()
        assert len(outcomes(home, 3)) == 3
        home.start(SECOND)
        assert outcomes(home, 4) == {
            FIRST: "installed",
            SECOND: "installed",
            TURNED: "refused",
            OFF: "declined",
        }
        answer = status(home)["answers"][FIRST]
        assert answer["metric"] == "accuracy"
        assert answer["score"] > answer["before"] + 0.2
        assert current(home, TURNED)["rollout"] == begun
        assert current(home, FIRST)["before"] == answer["before"]
        view = home.devices()[TURNED]["board_model"]
        assert f"model {better} (run {trained}, round 1) refused" in view

        again = edgefed(
            "--no-config", "--fleet", FLEET, "--broker", str(home.address), "model", "status"
        )
        assert (again.code, "model_tolerance is 0.01" in again.out) == (0, True), again

        home.kill(SECOND)
        home.wait_for_devices(3)
        home._order("model.rollback")
        wait_until(lambda: current(home, FIRST)["rollout"] == begun, "a rollback", home.logs)
        home.start(SECOND)
        wait_until(lambda: current(home, SECOND)["rollout"] == begun, "a rollback", home.logs)
        assert home.devices()[FIRST]["board_model"].endswith("an operator withdrew it")

        third = roll_out(home, trained)
        assert ended(home)["status"] == "finished", home.logs()
        stopped = roll_out(home, untrained, 0.75, 1.0, stop_at=0.1)
        found = ended(home)
        assert (found["status"], found["stage"], found["asked"]) == ("stopped", 1, 3)
        refused = [each for each in found["answers"].values() if each["outcome"] == "refused"]
        assert all(each["before"] > each["score"] for each in refused)
        assert refused
        assert current(home, FIRST)["rollout"] == third
    assert [*dict.fromkeys(seen)] == [begun, better, third], "a withdrawn one is seen once"
    assert stopped not in seen

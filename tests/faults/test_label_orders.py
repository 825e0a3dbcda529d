"""Orders about label bounties over a real broker: one that was acknowledged survives a SIGKILL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgefed.config.recipes.recipe import Recipe
from tests.faults.fleet_processes import FleetProcesses, fleet, wait_until
from tests.lacking import LABELS, WANTED, installed

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

DEVICES = 2


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with installed(tmp_path / "site", monkeypatch):
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
            "rounds": {"count": 3, "quorum": 1.0, "min_devices": DEVICES},
            "simulation": {"devices": DEVICES},
        }
    )


def paused(home: FleetProcesses) -> str:
    """Start a run and return its id once it waits with all bounties open."""
    run = home.begin(paused=True)
    wait_until(lambda: home.record(run)["status"] == "paused", "the pause", home.logs)
    rows = home.bounties()
    assert [row["status"] for row in rows] == ["open"] * (DEVICES * LABELS)
    return run


def ended(home: FleetProcesses, run: str) -> tuple[str, dict[tuple[str, int], str]]:
    """Let a run go on and return its digest and the status of each bounty."""
    home.resume(run)
    record = home.finish(run)
    assert record["status"] == "finished", record["reason"]
    rows = {(row["device"], row["label"]): row["status"] for row in home.bounties()}
    return str(record["weights_digest"]), rows


def test_an_acknowledged_order_survives_sigkill_before_the_next_exchange(tmp_path: Path) -> None:
    with fleet(tmp_path / "home", plan()) as home:
        run = paused(home)
        told = home.order_labels(run, "cancel", device="device-01", label=1)
        assert (told["number"], told["bounties"]["open"]) == (1, 1)
        home.kill("coordinator")
        home.start("coordinator")
        assert len(home.bounties()) == DEVICES * LABELS, "there before the devices have returned"
        told = home.order_labels(run, "cancel", label="2")
        assert told["number"] == 2
        killed = ended(home, run)
        cancelled = {key for key, status in killed[1].items() if status == "cancelled"}
        assert cancelled == {("device-01", 1), ("device-00", 2), ("device-01", 2)}
        home.kill("coordinator")
        home.start("coordinator")
        after = {(row["device"], row["label"]): row["status"] for row in home.bounties()}
        assert after == killed[1], "of the last run, after its end"
        run = paused(home)
        home.order_labels(run, "cancel", device="device-01", label=1)
        home.order_labels(run, "cancel", label=2)
        assert ended(home, run) == killed, "the same without a kill"
        run = paused(home)
        home.order_labels(run, "cancel", label=2)
        assert ended(home, run)[0] != killed[0], "each order counts"

"""A run on a live fleet while somebody floods the broker: how much longer it takes, and its digest.

Agents, a coordinator and Mosquitto, each in its own process, without TLS or an access list,
so that every message of the flood arrives. The flood begins in the second round.

    python -m benchmarks.floods [--agents 4] [--rounds 40] [--json]
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.attacks.flooding import FLOODS, publish
from benchmarks.fleets.loopback import FLEET, Fleet, plain_fleet
from benchmarks.shared.harness import parser, show, table
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.values.address import Address
from edgefed.control.coordinator_client import CoordinatorClient
from edgefed.errors import EdgeFedError
from edgefed.wire.topics import Topics
from tests.faults.fleet_processes import dealt

MESSAGES = {
    "none": 0,
    "needs": 20_000,
    "births": 20_000,
    "tasks": 100_000,
    "states": 20_000,
    "requests": 20_000,
    "cancels": 100_000,
}
"""Messages of each flood."""

POLL = 0.1
"""Seconds between two looks at the run."""


def recipe(agents: int, rounds: int, deadline: float = 300.0) -> Recipe:
    """Return a run in which every device trains in every round, until all have answered.

    Args:
        agents: number of devices.
        rounds: to train.
        deadline: of an exchange, in seconds.
    """
    return Recipe.model_validate(
        {
            "name": "floods",
            "seed": 3,
            "model": {"name": "mlp", "hidden": [64]},
            "data": {"name": "digits"},
            "training": {"epochs": 3, "batch_size": 8},
            "rounds": {
                "count": rounds,
                "min_devices": agents,
                "quorum": 1.0,
                "deadline": deadline,
                "lost_grace": "deadline",
            },
            "simulation": {"devices": agents},
        }
    )


def measure(floods: Sequence[str], agents: int, rounds: int) -> list[dict[str, Any]]:
    """Return a row a flood, each on a fleet of its own."""
    rows: list[dict[str, Any]] = []
    for flood in floods:
        with tempfile.TemporaryDirectory() as text:
            row = one(flood, recipe(agents, rounds), Path(text))
        undisturbed = rows[0] if rows else row
        row["ratio"] = row["seconds"] / undisturbed["seconds"]
        row["same_digest"] = row["digest"] == undisturbed["digest"]
        rows.append(row)
    return rows


def one(flood: str, work: Recipe, folder: Path) -> dict[str, Any]:
    """Run the recipe under a flood and return its row."""
    shards = dealt(work)
    with plain_fleet(folder, shards) as fleet, fleet.client() as client:
        fleet.wait_for_devices(len(shards))
        return _run(fleet, client, flood, work, list(shards))


def _run(
    fleet: Fleet, client: CoordinatorClient, flood: str, work: Recipe, names: Sequence[str]
) -> dict[str, Any]:
    started = time.monotonic()
    run = client.order("run.start", recipe=work.model_dump(mode="json"))["run"]
    while client.ask("run.show", run=run)["round"] < 2:
        time.sleep(POLL)
    sender, took = _begin(fleet.address, flood, names)
    record = _ended(client, run)
    seconds = time.monotonic() - started
    sender.join()
    if not took:
        raise RuntimeError(f"The flood of {flood} ended with an error.")
    inbox = client.ask("snapshot")["inbox"]
    return {
        "flood": flood,
        "messages": MESSAGES[flood],
        "flood_seconds": took[0],
        "seconds": seconds,
        "status": record["status"],
        "digest": record["weights_digest"],
        "not_read": sum(inbox["refused"].values()),
        "dropped": inbox["dropped"],
    }


def _begin(
    address: Address, flood: str, names: Sequence[str]
) -> tuple[threading.Thread, list[float]]:
    """Start a flood; return its thread, and a list that will hold how long it took."""
    took: list[float] = []

    def send() -> None:
        begun = time.monotonic()
        if flood != "none":
            publish(address, FLOODS[flood](Topics(FLEET), names, MESSAGES[flood]))
        took.append(time.monotonic() - begun)

    sender = threading.Thread(target=send)
    sender.start()
    return sender, took


def _ended(client: CoordinatorClient, run: str) -> dict[str, Any]:
    """Wait for the end of a run; a question that the flood drowned is asked again."""
    while True:
        try:
            record = dict(client.ask("run.show", run=run))
        except EdgeFedError:
            continue
        if record["status"] in ("finished", "failed", "aborted"):
            return record
        time.sleep(POLL)


def main() -> None:
    """Measure and print."""
    command = parser("floods", __doc__, agents=4, rounds=40, floods=",".join(MESSAGES))
    options = command.parse_args()
    rows = measure(options.floods.split(","), options.agents, options.rounds)
    show(options, rows, table(rows, without=("digest",)))


if __name__ == "__main__":
    main()

"""A run on a live fleet while somebody floods the broker: how much longer it takes, and its digest.

Agents, a coordinator and Mosquitto, each in its own process, without TLS or an access list,
so that every message of the flood arrives. The flood begins in the second round.

    python -m benchmarks.floods [--agents 4] [--rounds 40] [--json]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.attacks.flooding import FLOODS, publish
from broker.address import free_port
from edgefed.cli.programs.processes import Processes, running, wait_for_coordinator
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.values.address import Address
from edgefed.control.coordinator_client import CoordinatorClient
from edgefed.coordinator.models.run_model import load_dataset
from edgefed.data.devices.partition import deal_recipe
from edgefed.data.devices.shard_files import write_shard
from edgefed.simulator.local_fleet import device_names
from edgefed.wire.topics import Topics

FLEET = "floods"
MESSAGES = {
    "none": 0,
    "needs": 20_000,
    "births": 20_000,
    "states": 20_000,
    "requests": 20_000,
    "tasks": 100_000,
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
    processes = Processes(Address("127.0.0.1", free_port()), FLEET, folder)
    with running(processes):
        processes.start_broker("auto")
        processes.start_coordinator()
        shards = deal_recipe(load_dataset(work, None), work, 0.0)
        names = device_names(len(shards))
        for name, shard in zip(names, shards, strict=True):
            path = folder / f"{name}.npz"
            write_shard(path, shard)
            processes.start_agent(name, f"npz:{path}")
        wait_for_coordinator(processes)
        return _run(processes, flood, work, names)


def _run(processes: Processes, flood: str, work: Recipe, names: Sequence[str]) -> dict[str, Any]:
    client = CoordinatorClient(processes.address, FLEET)
    client.connect()
    try:
        while len(client.ask("snapshot")["snapshot"]["devices"]) < len(names):
            time.sleep(POLL)
        started = time.monotonic()
        run = client.order("run.start", recipe=work.model_dump(mode="json"))["run"]
        while client.ask("run.show", run=run)["round"] < 2:
            time.sleep(POLL)
        sender, took = _begin(processes.address, flood, names)
        record = _ended(client, run)
        seconds = time.monotonic() - started
        sender.join()
        if not took:
            raise RuntimeError(f"The flood of {flood} ended with an error.")
        inbox = client.ask("snapshot")["inbox"]
    finally:
        client.close()
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
    from edgefed.errors import EdgeFedError

    while True:
        try:
            record = dict(client.ask("run.show", run=run))
        except EdgeFedError:
            continue
        if record["status"] in ("finished", "failed", "aborted"):
            return record
        time.sleep(POLL)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows for people."""
    head = f"{'flood':<10}{'messages':>10}{'flood s':>9}{'run s':>8}{'ratio':>7}"
    lines = [f"{head}{'not read':>10}{'dropped':>9}  digest"]
    for row in rows:
        digest = "the same" if row["same_digest"] else f"OTHER, {row['status']}"
        lines.append(
            f"{row['flood']:<10}{row['messages']:>10}{row['flood_seconds']:>9.1f}"
            f"{row['seconds']:>8.1f}{row['ratio']:>7.2f}{row['not_read']:>10}"
            f"{row['dropped']:>9}  {digest}"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.floods", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--agents", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--floods", default="none,needs,births,tasks,states,requests,cancels")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = measure(arguments.floods.split(","), arguments.agents, arguments.rounds)
    print(json.dumps(rows) if arguments.json else table(rows))


if __name__ == "__main__":
    main()

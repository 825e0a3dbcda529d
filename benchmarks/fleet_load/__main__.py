"""What one coordinator holds: rounds, receipts, status and idle costs by the number of devices.

Light devices, which train nothing, speak the whole protocol over a connection each to a real
Mosquitto and a real coordinator; with ``--tls`` by mutual TLS and with signed messages. Their
answers are random updates of a model of 100 KB in fp32. All devices answer each round. The floor of
a round is a subscriber that adds up as many bytes from the same broker.

    python -m benchmarks.fleet_load [--devices 100 300 1000] [--rounds 3] [--idle 20]
        [--tls] [--json]
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.fleet_load.connections import Connections, allow_sockets
from benchmarks.fleet_load.floor import floor_seconds
from benchmarks.fleet_load.light_device import CLASSES, LightDevice, Load
from benchmarks.fleets.loopback import FLEET, Fleet, plain_fleet, secured_fleet
from benchmarks.shared.harness import parser, show
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.values.address import Address
from edgefed.trust.signatures import Signer
from edgefed.wire.topics import Topics

HIDDEN = 333
"""Units that make a model of 100 KB: 64 inputs, 10 classes."""

UPDATE_BYTES = 4 * ((64 + 1) * HIDDEN + (HIDDEN + 1) * CLASSES)

SIZES = (100, 300, 1000)
STATUS_EVERY = 5.0
PATIENCE = 300.0


def plan(devices: int, rounds: int) -> Recipe:
    """Return a run in which all devices answer each round."""
    return Recipe.model_validate(
        {
            "name": "load",
            "seed": 1,
            "model": {"name": "mlp", "hidden": [HIDDEN]},
            "data": {"name": "none", "classes": [str(label) for label in range(CLASSES)]},
            "rounds": {
                "count": rounds,
                "cohort": devices,
                "min_devices": devices,
                "quorum": 1.0,
                "deadline": 900,
            },
            "wire": {"uplink": "fp32", "downlink": "fp32"},
            "evaluation": {"every": 0, "top_k": 0},
        }
    )


@dataclass
class Use:
    """CPU seconds of the coordinator and the broker, from one call to the next."""

    processes: dict[str, psutil.Process]
    before: dict[str, float] = field(default_factory=dict)

    def since(self) -> dict[str, float]:
        """Return the CPU seconds of each since the last call."""
        times = {name: process.cpu_times() for name, process in self.processes.items()}
        now = {name: spent.user + spent.system for name, spent in times.items()}
        used = {name: seconds - self.before.get(name, 0.0) for name, seconds in now.items()}
        self.before = now
        return used

    def memory(self) -> dict[str, float]:
        """Return the resident memory of each in MB."""
        return {name: process.memory_info().rss / 1e6 for name, process in self.processes.items()}


class Asking:
    """Calls ``edgefed status`` again and again and notes how long each call takes."""

    def __init__(self, address: Address) -> None:
        self.seconds: list[float] = []
        self.failed = 0
        self._words = [sys.executable, "-m", "edgefed.cli.main", "--no-config", "--fleet", FLEET]
        state = address.credentials.folder.parents[2] if address.credentials else None
        self._words += ["--state", str(state)] if state else ["--broker", str(address)]
        self._words += ["status"]
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Wait for the last answer."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(STATUS_EVERY / 2):
            began = time.monotonic()
            ended = subprocess.run(self._words, capture_output=True, check=False)
            if ended.returncode:
                self.failed += 1
            else:
                self.seconds.append(time.monotonic() - began)
            self._stopping.wait(STATUS_EVERY / 2)


@contextmanager
def loaded_fleet(
    folder: Path, count: int, *, tls: bool
) -> Iterator[tuple[Fleet, Connections, Load]]:
    """Start a broker, a coordinator and connected light devices."""
    names = [f"d-{number:05d}" for number in range(count)]
    load, topics = Load(seed=1), Topics(FLEET)
    with secured_fleet(folder, {}, names) if tls else plain_fleet(folder, {}) as fleet:
        devices = []
        for name in names:
            own = fleet.addresses[name].credentials if tls else None
            devices.append(LightDevice(name, topics, load, Signer(own) if own else None))
        connections = Connections(fleet.address, devices, fleet.addresses)
        connections.start()
        try:
            fleet.wait_for_devices(count, PATIENCE)
            yield fleet, connections, load
        finally:
            connections.stop()


def measured(count: int, rounds: int, idle: float, *, tls: bool) -> dict[str, Any]:
    """Return the figures of a fleet of so many devices."""
    allow_sockets(count)
    with (
        tempfile.TemporaryDirectory() as folder,
        loaded_fleet(Path(folder), count, tls=tls) as (fleet, connections, load),
    ):
        use = Use({name: fleet.parts()[name] for name in ("coordinator", "broker")})
        time.sleep(2.0)
        use.since()
        before = connections.bytes
        time.sleep(idle)
        resting, rest_bytes = use.since(), connections.bytes - before
        asking = Asking(fleet.address)
        record = fleet.run(plan(count, rounds))
        asking.stop()
        working, memory = use.since(), use.memory()
        rows = rounds_of(Path(folder), record["run"])
        took = statistics.median(row["seconds"] for row in rows)
        floor = None if tls else floor_seconds(fleet.address, count, UPDATE_BYTES)
        return {
            "devices": count,
            "round s": took,
            "floor s": floor,
            "round / floor": floor and took / floor,
            "receipt p50 s": statistics.median(load.receipts),
            "receipt p95 s": statistics.quantiles(load.receipts, n=20)[-1],
            "sent twice": load.repeated / load.replies,
            "status s": statistics.median(asking.seconds) if asking.seconds else None,
            "status failed": asking.failed,
            "coordinator cpu s a round": working["coordinator"] / rounds,
            "broker cpu s a round": working["broker"] / rounds,
            "coordinator mb": memory["coordinator"],
            "broker mb": memory["broker"],
            "not accepted": sum(load.outcomes.values()) - load.outcomes.get("accepted", 0),
            "lost connections": connections.lost,
            "idle core": resting["coordinator"] / idle,
            "idle bytes s a device": rest_bytes / idle / count,
        }


def rounds_of(folder: Path, run: str) -> list[dict[str, Any]]:
    """Return what each round of a run measured."""
    (file,) = folder.rglob(f"{run}/metrics.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


def keys(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures by name and number of devices, as ``--json`` prints them."""
    names = {
        "round s": "round_s",
        "floor s": "floor_s",
        "receipt p50 s": "receipt_p50_s",
        "receipt p95 s": "receipt_p95_s",
        "sent twice": "sent_twice",
        "status s": "status_s",
    }
    named = {
        f"{short}_{row['devices']}": row[name] for row in rows for name, short in names.items()
    }
    return {**named, "rows": list(rows)}


def main() -> None:
    """Measure the fleets one after another."""
    made: ArgumentParser = parser("fleet_load", __doc__, rounds=3, idle=20.0)
    made.add_argument("--devices", type=int, nargs="+", default=list(SIZES))
    made.add_argument("--tls", action="store_true", help="certificates and signed messages")
    options = made.parse_args()
    rows = [
        measured(count, options.rounds, options.idle, tls=options.tls) for count in options.devices
    ]
    show(options, keys(rows) if options.json else rows)


if __name__ == "__main__":
    main()

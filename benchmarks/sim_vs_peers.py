"""Simulated rounds of LeNet-5 against pfl, Flower and a plain loop, on the same two cores.

The workload: 100 clients of 230 samples, 10 per round, one epoch in batches of 20, no evaluation
(``peers/work.py``). EdgeFed runs as ``edgefed sim run`` with two workers, pfl with two workers, and
Flower with two Ray actors; each uses one torch thread, and the systems run one after another. The
first call installs the peers in their own environments. The median excludes the first two rounds.
Memory is the largest sum of PSS over all processes; start-up lasts until the first round begins.

    python -m benchmarks.sim_vs_peers [--rounds 30] [--only edgefed,pfl] [--cache DIR] [--json]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from benchmarks.peers import work
from benchmarks.peers.environments import python_of
from benchmarks.peers.memory import PeakMemory
from benchmarks.shared.harness import ROOT, parser, show
from broker.address import free_port

WARM_UP = 2
WORKERS = 2

RECIPE = f"""
name = "anchor"
[model]
name = "lenet5"
[data]
name = "npz"
path = "{{data}}"
partition = "iid"
[training]
batch_size = {work.BATCH}
learning_rate = {work.RATE}
[rounds]
count = {{rounds}}
cohort = {work.COHORT}
[wire]
downlink = "fp32"
uplink = "fp32"
[evaluation]
every = 0
[simulation]
devices = {work.CLIENTS}
workers = {WORKERS}
"""

QUIET = {
    "OMP_NUM_THREADS": "1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYTHONWARNINGS": "ignore",
    "GLOO_SOCKET_IFNAME": "lo",
}
"""Nobody calls home; one thread each."""


@dataclass(frozen=True)
class Laps:
    """What a system took.

    Attributes:
        rounds: seconds of each round.
        start_up: seconds until the first one began.
        megabytes: peak memory.
    """

    rounds: Sequence[float]
    start_up: float
    megabytes: float


@dataclass(frozen=True)
class Place:
    """Where a benchmark runs.

    Attributes:
        data: the work's data.
        folder: for files of this run.
        cache: for the peers' environments.
        rounds: how many.
    """

    data: Path
    folder: Path
    cache: Path
    rounds: int


def edgefed(place: Place) -> Laps:
    """Run the work as a user does, and read the rounds from the run's events."""
    recipe = place.folder / "anchor.toml"
    recipe.write_text(RECIPE.format(data=place.data, rounds=place.rounds))
    state = place.folder / "state"
    words = [sys.executable, "-m", "edgefed.cli.main", "--state", str(state), "--no-config"]
    began = time.time()
    _, megabytes = _watched([*words, "sim", "run", str(recipe), "--json"], place)
    (events,) = state.rglob("events.jsonl")
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    kept = [line for line in lines if line["kind"] in ("round", "scored")]
    stamps = [
        datetime.fromisoformat(line["time"].replace("Z", "+00:00")).timestamp() for line in kept
    ]
    return Laps(_gaps(stamps), stamps[0] - began, megabytes)


def pfl(place: Place) -> Laps:
    """Run the work in pfl, in two workers."""
    python = python_of("pfl", place.cache)
    torchrun = ["-m", "torch.distributed.run", "--nnodes=1", f"--nproc_per_node={WORKERS}"]
    where = ["--master_addr", "127.0.0.1", "--master_port", str(free_port())]
    return _peer([str(python), *torchrun, *where, "-m", "benchmarks.peers.pfl_rounds"], place)


def flower(place: Place) -> Laps:
    """Run the work in Flower, in two actors."""
    python = python_of("flower", place.cache)
    return _peer([str(python), "-m", "benchmarks.peers.flower_rounds"], place)


def plain(place: Place) -> Laps:
    """Run the work in a plain loop, in one process."""
    return _peer([sys.executable, "-m", "benchmarks.peers.plain_rounds"], place)


SYSTEMS: Mapping[str, Callable[[Place], Laps]] = {
    "edgefed": edgefed,
    "pfl": pfl,
    "flower": flower,
    "plain": plain,
}


def _peer(command: Sequence[str], place: Place) -> Laps:
    """Run a peer's program, which prints when its rounds began."""
    began = time.monotonic()
    output, megabytes = _watched([*command, str(place.data), str(place.rounds)], place)
    line = next(line for line in reversed(output.splitlines()) if line.startswith("["))
    stamps = json.loads(line)
    return Laps(_gaps(stamps), stamps[0] - began, megabytes)


def _watched(command: Sequence[str], place: Place) -> tuple[str, float]:
    """Run a program; return what it printed and its peak memory.

    Raises:
        SystemExit: it failed; the end of what it said goes with it.
    """
    keep = {k: v for k, v in os.environ.items() if not k.startswith("EDGEFED_") or "NATIVE" in k}
    environment = {**keep, **QUIET, "FLWR_HOME": str(place.folder / "flower")}
    environment["PYTHONPATH"] = str(ROOT)
    with (place.folder / "stderr").open("w+") as errors:
        child = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        with PeakMemory(child.pid) as memory:
            output, _ = child.communicate()
        if child.returncode:
            errors.seek(0)
            raise SystemExit(f"{' '.join(command[:4])} failed:\n{errors.read()[-2000:]}")
    return output, memory.megabytes


def _gaps(stamps: Sequence[float]) -> list[float]:
    """Return the time between each two neighbours."""
    return [after - before for before, after in pairwise(stamps)]


def row(laps: Laps) -> dict[str, float]:
    """Return a system's figures."""
    median = statistics.median(laps.rounds[WARM_UP:] or laps.rounds)
    return {
        "median_round_s": round(median, 4),
        "updates_per_s": round(work.COHORT / median, 1),
        "memory_mb": round(laps.megabytes),
        "start_up_s": round(laps.start_up, 1),
    }


def measure(names: Sequence[str], cache: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Return the figures of each system, one after another."""
    rows = {}
    with tempfile.TemporaryDirectory() as text:
        data = Path(text) / "noise.npz"
        work.write(data)
        for name in names:
            folder = Path(text) / name
            folder.mkdir()
            try:
                rows[name] = row(SYSTEMS[name](Place(data, folder, cache, rounds)))
            except subprocess.CalledProcessError as error:
                print(f"{name} is left out, it cannot be installed: {error}", file=sys.stderr)
    return rows


def ratios(rows: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return how many times a peer's client updates a second EdgeFed makes."""
    if "edgefed" not in rows:
        return {}
    own = rows["edgefed"]["updates_per_s"]
    others = {name: each["updates_per_s"] for name, each in rows.items() if name != "edgefed"}
    return {f"ratio_to_{name}": round(own / speed, 2) for name, speed in others.items()}


def main() -> None:
    """Measure and print."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgefed-peers"
    command = parser("sim_vs_peers", __doc__, rounds=30, only=",".join(SYSTEMS), cache=cache)
    options = command.parse_args()
    names = [name for name in SYSTEMS if name in options.only.split(",")]
    systems = measure(names, options.cache.resolve(), options.rounds)
    show(options, {"systems": systems, **ratios(systems)})


if __name__ == "__main__":
    main()

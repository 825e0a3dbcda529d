"""Time to accuracy of synchronous, over-selected and buffered rounds.

    virtual  1,000 virtual devices with log-normal speeds in virtual time, 100 at work at a time;
             digits with noise, even data
    agents   8 agents of which 2 are five times slower (stopped for 80 ms of every 100), with even
             data, and with two labels that only the slow ones hold; wall-clock time

Over-selected rounds ask 130 % and take the first 100 %. A round of 100 (8) devices and five (two)
buffers of 20 (4) train as much; each kind gets as many answers. "Not reached" counts as the end.

    python -m benchmarks.asynchronous [--parts virtual agents] [--seeds 3] [--json]
"""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fleets.loopback import FLEET, Fleet, plain_fleet
from benchmarks.shared.harness import parser, show
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.storage.run_store import Store
from edgefed.data.base.types import Shard
from edgefed.data.devices.partition import deal_recipe
from edgefed.data.sets.datasets import load
from edgefed.data.sets.given import given_data
from edgefed.errors import EdgeFedError
from edgefed.process.clock import SystemClock
from edgefed.simulator.run import Simulation

AIM = 0.9
KINDS = ("synchronous", "over-selected", "buffered")
SLOW = ("device-06", "device-07")
RARE = (8, 9)
"""The labels that only the slow agents hold, in skewed data."""

Curve = Sequence[tuple[float, float]]
"""Seconds since the begin, and accuracy."""


def rounds_of(kind: str, cohort: int, buffer: int, rounds: int) -> dict[str, Any]:
    """Return the ``[rounds]`` table of a kind; all kinds take the same number of answers."""
    if kind == "buffered":
        count = rounds * cohort // buffer
        own = {"mode": "buffered", "buffer": buffer, "concurrency": cohort, "max_staleness": 100}
        return {"count": count, **own}
    more = {"over_selection": 0.3} if kind == "over-selected" else {}
    return {"count": rounds, "cohort": cohort, **more}


def virtual(kind: str, seed: int, rounds: int, spread: float) -> Curve:
    """Return the curve of 1,000 virtual devices in virtual time."""
    recipe = Recipe.model_validate(
        {
            "seed": seed,
            "model": {"name": "mlp", "hidden": [64]},
            "data": {"partition": "iid"},
            "training": {"epochs": 1, "batch_size": 10, "learning_rate": 0.3},
            "rounds": {"deadline": 1e6, **rounds_of(kind, 100, 20, rounds)},
            "simulation": {"devices": 1000},
            "speeds": {"seconds_per_sample": 0.05, "spread": spread},
            "evaluation": {"every": 5 if kind == "buffered" else 1, "on": "coordinator"},
        }
    )
    digits, rng = load(recipe.data, None, 1), np.random.default_rng(seed)
    inputs, targets = digits.train.inputs, digits.train.targets
    picked = rng.integers(0, len(inputs), 20_000)
    noisy = inputs[picked] + rng.normal(0, 0.1, inputs[picked].shape).astype(np.float32)
    test = (digits.test.inputs, digits.test.targets)
    given = given_data((noisy.astype(np.float32), targets[picked]), test, recipe)
    with tempfile.TemporaryDirectory() as folder:
        ended = Simulation(recipe, Path(folder), SystemClock(), given=given).run().record
        if ended.status != "finished":
            raise SystemExit(ended.reason)
        return curve(Path(folder), ended.run)


def curve(folder: Path, run: str) -> Curve:
    """Return the curve of a run in a store."""
    with closing(Store(folder, durable=False)) as store:
        rows = store.rounds(run)
    points, seconds = [], 0.0
    for row in rows:
        seconds += row["seconds"]
        if row["accuracy"] is not None:
            points.append((seconds, row["accuracy"]))
    return points


def agents(kind: str, seed: int, fleet: Fleet, folder: Path, rounds: int) -> Curve:
    """Return the curve of eight agents in wall-clock time."""
    table = rounds_of(kind, 6 if kind == "over-selected" else 8, 4, rounds)
    table = {**table, "min_devices": 8, "count": rounds * (2 if kind == "buffered" else 1)}
    plan = plan_of(seed, {"deadline": 300, **table})
    record = fleet.run(plan)
    return curve(folder / "coordinator" / FLEET, record["run"])


def plan_of(seed: int, rounds: Mapping[str, Any]) -> Recipe:
    """Return the recipe of the agents."""
    return Recipe.model_validate(
        {
            "seed": seed,
            "model": {"name": "cnn"},
            "data": {"partition": "iid"},
            "training": {"epochs": 3, "batch_size": 10, "learning_rate": 0.05},
            "rounds": rounds,
            "simulation": {"devices": 8, "holdout": 0.0},
            "evaluation": {"on": "coordinator"},
        }
    )


def shards_of(skewed: bool) -> dict[str, Shard]:
    """Return the data of eight devices: even, or with two labels on the slow ones alone."""
    recipe = plan_of(1, {})
    names = [f"device-{number:02d}" for number in range(8)]
    shards = dict(zip(names, deal_recipe(load(recipe.data, None, 1), recipe, 0.0), strict=True))
    if not skewed:
        return shards
    inputs = np.concatenate([shard.train.inputs for shard in shards.values()])
    targets = np.concatenate([shard.train.targets for shard in shards.values()])
    rare, dealt = np.isin(targets, RARE), {}
    for name, shard in shards.items():
        own = np.flatnonzero(rare if name in SLOW else ~rare)
        own = own[names.index(name) % (2 if name in SLOW else 6) :: 2 if name in SLOW else 6]
        part = type(shard.train)(inputs[own], targets[own])
        dealt[name] = type(shard)(part, shard.test, shard.classes)
    return dealt


@contextmanager
def slowed(fleet: Fleet) -> Iterator[None]:
    """Stop two agents for four fifths of the time."""
    pids = [fleet.parts()[name].pid for name in SLOW]
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            time.sleep(0.08)
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            time.sleep(0.02)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def reached(points: Curve) -> float | None:
    """Return the seconds until the aim; None if it was not reached."""
    return next((seconds for seconds, accuracy in points if accuracy >= AIM), None)


def row_of(name: str, kind: str, curves: Sequence[Curve]) -> dict[str, Any]:
    """Return a row of the table: means over seeds, with what was not reached as the whole time."""
    times = [reached(points) for points in curves]
    whole = [points[-1][0] for points in curves]
    found = [end if when is None else when for when, end in zip(times, whole, strict=True)]
    last = [points[-1][1] for points in curves]
    return {
        "case": name,
        "rounds": kind,
        "seconds to 0.9": statistics.mean(found),
        "deviation": statistics.pstdev(found),
        "not reached": sum(when is None for when in times),
        "accuracy at the end": statistics.mean(last),
        "seconds": statistics.mean(whole),
    }


def speedup(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    """Return how much sooner buffered rounds reach the aim than synchronous ones."""
    of = {row["rounds"]: row["seconds to 0.9"] for row in rows if row["case"] == name}
    return float(of["synchronous"] / of["buffered"])


def main() -> None:
    """Measure the parts and print the table."""
    parts = ("virtual", "agents")
    made = parser("asynchronous", __doc__, parts=parts, seeds=3, rounds=40, spread=1.0)
    options = made.parse_args()
    seeds, rows = range(1, options.seeds + 1), []
    figures: dict[str, Any] = {}
    if "virtual" in options.parts:
        for kind in KINDS:
            curves = [virtual(kind, seed, options.rounds, options.spread) for seed in seeds]
            rows.append(row_of("virtual", kind, curves))
        figures["speedup_buffered"] = speedup(rows, "virtual")
    if "agents" in options.parts:
        for name in ("even", "skewed"):
            with tempfile.TemporaryDirectory() as folder:
                home = Path(folder)
                with plain_fleet(home, shards_of(name == "skewed")) as fleet:
                    fleet.wait_for_devices(8)
                    with slowed(fleet):
                        for kind in KINDS:
                            count = options.rounds
                            curves = [agents(kind, seed, fleet, home, count) for seed in seeds]
                            rows.append(row_of(name, kind, curves))
            figures[f"speedup_{name}"] = speedup(rows, name)
    show(options, {**figures, "rows": rows})


if __name__ == "__main__":
    try:
        main()
    except EdgeFedError as error:
        raise SystemExit(error.as_line()) from error

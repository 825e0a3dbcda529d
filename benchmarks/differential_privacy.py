"""Accuracy on digits by epsilon: central and local differential privacy, and without.

300 virtual devices with 4 or 5 samples each train a linear classifier for ten rounds, all of them
in every round. Epsilon is that of the whole run at delta 1e-5, for fleets that differ in all data
of one device. The noise is the operating system's, so numbers differ a little from run to run.

    python -m benchmarks.differential_privacy [--seeds 3] [--rounds 10] [--devices 300]
        [--only NAME …] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgefed.algorithms.privacy_plan import privacy_plan
from edgefed.clock import SystemClock
from edgefed.config.recipe import Recipe
from edgefed.console import columns
from edgefed.simulator.run import Simulation

SETUPS: dict[str, dict[str, Any]] = {
    "none": {},
    **{
        f"central-{epsilon:g}": {"mechanism": "central", "epsilon": epsilon}
        for epsilon in (50.0, 8.0, 4.0, 2.0, 1.0)
    },
    "adaptive-8": {"mechanism": "central", "epsilon": 8.0, "adaptive": True, "clip": 0.1},
    **{
        f"local-{epsilon:g}": {"mechanism": "local", "epsilon": epsilon}
        for epsilon in (1000.0, 200.0, 50.0, 8.0)
    },
}


@dataclass(frozen=True)
class Row:
    """What the seeds of one set-up came to."""

    name: str
    multiplier: float | None
    accuracies: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean accuracy."""
        return statistics.fmean(self.accuracies)

    @property
    def deviation(self) -> float:
        """The standard deviation over seeds, with n - 1."""
        return statistics.stdev(self.accuracies) if len(self.accuracies) > 1 else 0.0


def recipe(privacy: dict[str, Any], seed: int, rounds: int, devices: int) -> Recipe:
    """Return the recipe of one run."""
    return Recipe.model_validate(
        {
            "seed": seed,
            "model": {"name": "mlp", "hidden": []},
            "data": {"name": "digits", "partition": "iid"},
            "algorithm": {"name": "fedavg", "weighting": "uniform"},
            "training": {"learning_rate": 0.5, "epochs": 5, "batch_size": 4},
            "rounds": {"count": rounds},
            "evaluation": {"every": 0, "confusion": False, "top_k": 0},
            "simulation": {"devices": devices, "workers": 1, "engine": "sequential"},
            "privacy": {"clip": 1.0, **privacy} if privacy else {},
        }
    )


def measured(name: str, seeds: int, rounds: int, devices: int) -> Row:
    """Run one set-up with every seed."""
    accuracies, multiplier = [], None
    for seed in range(1, seeds + 1):
        plan = recipe(SETUPS[name], seed, rounds, devices)
        if plan.privacy.wanted:
            multiplier = privacy_plan(plan.privacy, plan.rounds).multiplier
        with tempfile.TemporaryDirectory() as folder:
            record = Simulation(plan, Path(folder), SystemClock()).run().record
        if record.accuracy is None:
            raise RuntimeError(f"{name}: {record.reason}")
        accuracies.append(record.accuracy)
        print(f"{name} seed {seed}: {record.accuracy:.4f}", file=sys.stderr, flush=True)
    return Row(name, multiplier, tuple(accuracies))


def table(rows: list[Row]) -> Iterator[tuple[str, ...]]:
    """Yield the lines of the table."""
    yield "SET-UP", "NOISE MULTIPLIER", "ACCURACY", "DEVIATION", "SEEDS"
    for row in rows:
        noise = "" if row.multiplier is None else f"{row.multiplier:.4g}"
        yield row.name, noise, f"{row.mean:.4f}", f"{row.deviation:.4f}", str(len(row.accuracies))


def main() -> None:
    """Run all set-ups."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.differential_privacy", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--devices", type=int, default=300)
    parser.add_argument("--only", nargs="+", choices=list(SETUPS), default=list(SETUPS))
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rows = [measured(name, asked.seeds, asked.rounds, asked.devices) for name in asked.only]
    if asked.json:
        found = [{**asdict(row), "mean": row.mean, "deviation": row.deviation} for row in rows]
        print(json.dumps(found, indent=2))
    else:
        print(columns(list(table(rows))))


if __name__ == "__main__":
    main()

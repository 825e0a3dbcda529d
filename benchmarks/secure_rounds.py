"""Rounds with mutual TLS and signed messages, beside the same rounds without, in one run.

Two fleets with the same agents run side by side, each with its own coordinator and Mosquitto.
They take turns with short runs; while one works, the other is idle. The first round of each run is
excluded, because it sends the complete model.

    python -m benchmarks.secure_rounds [--agents 8] [--turns 6] [--rounds 12] [--json]
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.fleets.loopback import Fleet, plain_fleet, secured_fleet
from benchmarks.shared.harness import median_ratio, pairs, parser, show
from edgefed.config.recipes.recipe import Recipe
from tests.faults.fleet_processes import dealt


@dataclass(frozen=True)
class Turn:
    """A run of one of the two fleets.

    Attributes:
        seconds: of each round that counts.
        bytes: up and down, of each such round.
        cpu: seconds of CPU time of all processes, for one round.
        digest: of the weights.
    """

    seconds: list[float]
    bytes: list[int]
    cpu: float
    digest: str


def recipe(agents: int, rounds: int) -> Recipe:
    """Return the work: FedAvg on digits, where messages and not training take the time."""
    return Recipe.model_validate(
        {
            "name": "secure-rounds",
            "model": {"name": "cnn"},
            "data": {"name": "digits"},
            "training": {"batch_size": 16, "learning_rate": 0.05},
            "rounds": {"count": rounds, "cohort": agents, "min_devices": agents, "quorum": 1.0},
            "evaluation": {"every": 0},
            "simulation": {"devices": agents},
        }
    )


def measure(agents: int, turns: int, rounds: int) -> dict[str, Any]:
    """Let the fleets take turns and return the figures."""
    plan = recipe(agents, rounds)
    with (
        tempfile.TemporaryDirectory(prefix="secure-rounds-") as text,
        plain_fleet(Path(text) / "plain", dealt(plan)) as plain,
        secured_fleet(Path(text) / "secured", dealt(plan)) as secured,
    ):
        found = list(pairs(partial(turn, plain, plan), partial(turn, secured, plan), turns))
    return figures([one for one, _ in found], [other for _, other in found])


def turn(fleet: Fleet, plan: Recipe) -> Turn:
    """Run a recipe and return what its rounds took."""
    before = cpu_seconds(fleet)
    record = fleet.run(plan)
    cpu, counted = cpu_seconds(fleet) - before, record["history"][1:]
    return Turn(
        [row["seconds"] for row in counted],
        [row["sent"] + row["received"] for row in counted],
        cpu / plan.rounds.count,
        record["weights_digest"],
    )


def cpu_seconds(fleet: Fleet) -> float:
    """Return the CPU time that all processes of a fleet have taken so far."""
    times = [part.cpu_times() for part in fleet.parts().values()]
    return float(sum(each.user + each.system for each in times))


def figures(plain: Sequence[Turn], secured: Sequence[Turn]) -> dict[str, Any]:
    """Return medians, and the ratios of the second fleet to the first."""
    rows = [row("plain", plain), row("TLS and signatures", secured)]
    medians = [[statistics.median(each.seconds) for each in turns] for turns in (secured, plain)]
    cpu = [[each.cpu for each in turns] for turns in (secured, plain)]
    return {
        "rows": rows,
        "ratio": rows[1]["median_s"] / rows[0]["median_s"],
        "turns_ratio": median_ratio(*medians),
        "cpu_ratio": median_ratio(*cpu),
        "same_digest": len({each.digest for each in (*plain, *secured)}) == 1,
    }


def row(name: str, turns: Sequence[Turn]) -> dict[str, Any]:
    """Return the figures of one fleet."""
    seconds = [each for turn in turns for each in turn.seconds]
    return {
        "name": name,
        "rounds": len(seconds),
        "median_s": statistics.median(seconds),
        "quartiles_s": statistics.quantiles(seconds, n=4)[::2],
        "cpu_s": statistics.median(turn.cpu for turn in turns),
        "bytes": statistics.median(each for turn in turns for each in turn.bytes),
    }


def main() -> None:
    """Measure and print."""
    options = parser("secure_rounds", __doc__, agents=8, turns=6, rounds=12).parse_args()
    found = measure(options.agents, options.turns, options.rounds)
    show(options, found)


if __name__ == "__main__":
    main()

"""Rounds with mutual TLS and signed messages, beside the same rounds without, in one run.

Two fleets with the same agents run side by side, each with its own coordinator and Mosquitto.
They take turns with short runs; while one works, the other is idle. The first round of each run is
excluded, because it sends the complete model.

    python -m benchmarks.secure_rounds [--agents 8] [--turns 6] [--rounds 12] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.fleets.loopback import Fleet, plain_fleet, secured_fleet
from edgefed.config.recipes.recipe import Recipe


@dataclass
class Measured:
    """One of the two fleets.

    Attributes:
        name: of its row.
        rounds: seconds of each round that counts.
        bytes: up and down of each such round.
        turns: the median of each run's rounds.
        cpu: seconds of CPU time of each run, for one round.
        digests: of the runs.
    """

    name: str
    fleet: Fleet
    rounds: list[float] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    turns: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)

    def work(self, plan: Recipe) -> None:
        """Run a recipe and note its rounds."""
        before = self.fleet.cpu_seconds()
        record = self.fleet.run(plan)
        self.cpu.append((self.fleet.cpu_seconds() - before) / plan.rounds.count)
        if record["status"] != "finished":
            raise SystemExit(f"the run {record['status']}: {record['reason']}")
        counted = record["history"][1:]
        self.turns.append(statistics.median(row["seconds"] for row in counted))
        for row in counted:
            self.rounds.append(row["seconds"])
            self.bytes.append(row["sent"] + row["received"])
        self.digests.append(record["weights_digest"])


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


@contextmanager
def both(folder: Path, plan: Recipe) -> Iterator[tuple[Measured, Measured]]:
    """Start the two fleets, which are ended with the block."""
    with ExitStack() as stack:
        plain = stack.enter_context(plain_fleet(folder / "plain", plan))
        secured = stack.enter_context(secured_fleet(folder / "secured", plan))
        yield Measured("plain", plain), Measured("TLS and signatures", secured)


def measure(agents: int, turns: int, rounds: int) -> dict[str, Any]:
    """Let the fleets take turns and return the figures."""
    plan = recipe(agents, rounds)
    with (
        tempfile.TemporaryDirectory(prefix="secure-rounds-") as text,
        both(Path(text), plan) as fleets,
    ):
        for turn in range(turns):
            # Who begins alternates too, so that neither always works on the warmer machine.
            for each in fleets if turn % 2 else fleets[::-1]:
                each.work(plan)
    return figures(fleets)


def figures(fleets: Sequence[Measured]) -> dict[str, Any]:
    """Return medians, and the ratios of the second fleet to the first."""
    rows: list[dict[str, Any]] = [
        {
            "name": each.name,
            "rounds": len(each.rounds),
            "median_s": statistics.median(each.rounds),
            "quartiles_s": statistics.quantiles(each.rounds, n=4)[::2],
            "cpu_s": statistics.median(each.cpu),
            "bytes": statistics.median(each.bytes),
        }
        for each in fleets
    ]
    digests = {digest for each in fleets for digest in each.digests}
    plain, secured = fleets
    return {
        "rows": rows,
        "ratio": rows[1]["median_s"] / rows[0]["median_s"],
        "turns_ratio": _median_ratio(secured.turns, plain.turns),
        "cpu_ratio": _median_ratio(secured.cpu, plain.cpu),
        "same_digest": len(digests) == 1,
    }


def _median_ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """Return the median of the ratios turn by turn, which a changing load alters less."""
    return statistics.median(one / other for one, other in zip(over, under, strict=True))


def table(found: dict[str, Any]) -> str:
    """Return the figures for people."""
    head = f"{'':<20}{'rounds':>8}{'median ms':>11}{'quartiles':>16}{'CPU ms':>9}{'kB a round':>12}"
    lines = [head]
    for row in found["rows"]:
        low, high = (f"{1e3 * each:.0f}" for each in row["quartiles_s"])
        lines.append(
            f"{row['name']:<20}{row['rounds']:>8}{1e3 * row['median_s']:>11.1f}"
            f"{low + ' to ' + high:>16}{1e3 * row['cpu_s']:>9.0f}{row['bytes'] / 1e3:>12.1f}"
        )
    same = "the same digest" if found["same_digest"] else "DIFFERENT DIGESTS"
    lines.append(
        f"ratio of the medians {found['ratio']:.3f}, turn by turn {found['turns_ratio']:.3f}, "
        f"of CPU time {found['cpu_ratio']:.3f}; {same}"
    )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.secure_rounds", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--agents", type=int, default=8)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = measure(arguments.agents, arguments.turns, arguments.rounds)
    print(json.dumps(found) if arguments.json else table(found))


if __name__ == "__main__":
    main()

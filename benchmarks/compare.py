"""Run two checkouts of EdgeFed alternately on one machine, to see whether one is slower.

Each pair runs the same benchmarks in both checkouts, in alternating order, so that a drift of the
machine's speed affects both. The ratio is computed for each pair; quote the median.

    python -m benchmarks.compare ../before [--pairs 10] [--json]

``../before`` is a checkout with a ``.venv`` of its own (``git worktree add ../before REV``, then
``make setup`` there).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

Figures = dict[str, float]
"""What one checkout measured, by name; smaller is better."""


def measure(checkout: Path) -> Figures:
    """Return the figures of one checkout."""
    return {
        **_deployed_rounds(checkout),
        **_simulated_rounds(checkout),
        **_training(checkout),
        **_merging(checkout),
        **_codecs(checkout),
    }


def _deployed_rounds(checkout: Path) -> Figures:
    rounds = _run(checkout, "round_latency", "--agents", "4", "--rounds", "20")
    return {f"deployed round, {row['codec']}, s": row["median_round_s"] for row in rounds["rows"]}


def _simulated_rounds(checkout: Path) -> Figures:
    simulated = _run(checkout, "sim_vs_peers", "--only", "edgefed", "--rounds", "25")
    return {"simulated round, s": simulated["systems"]["edgefed"]["median_round_s"]}


def _training(checkout: Path) -> Figures:
    steps = _run(checkout, "fedmix_step", "--repeats", "9", "--models", "lenet5")
    figures = {
        f"{row['variant']} step, {row['kind']}, ms": row["milliseconds"]
        for row in steps["rows"]
        if row["variant"] in ("FedAvg", "FedMix")
    }
    milliseconds = _run(checkout, "local_training")["ms"]
    for kind in ("torch", "kernels"):
        if kind in milliseconds:
            figures[f"local training, {kind}, ms"] = milliseconds[kind]
    return figures


def _merging(checkout: Path) -> Figures:
    speed = _run(checkout, "merge")["gb_per_s"]
    return {"exact mean, s per GB": 1 / speed["exact"]}


def _codecs(checkout: Path) -> Figures:
    figures: Figures = {}
    for row in _run(checkout, "wire", "--repeats", "3")["rows"]:
        if row["model"] == "lenet5":
            for way in ("encode", "decode"):
                figures[f"{way} {row['codec']}, s per GB"] = 1000 / row[f"{way}_mb_s"]
    return figures


def _run(checkout: Path, name: str, *words: str) -> dict[str, Any]:
    """Run one benchmark of a checkout and return what it prints."""
    program = checkout / ".venv" / "bin" / "python"
    command = [str(program), "-m", f"benchmarks.{name}", *words, "--json"]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def in_turn(before: Path, after: Path, pairs: int) -> list[tuple[Figures, Figures]]:
    """Return the figures of both checkouts, pair by pair; who begins alternates."""
    found = []
    for number in range(pairs):
        if number % 2:
            new, old = measure(after), measure(before)
        else:
            old, new = measure(before), measure(after)
        found.append((old, new))
        print(f"pair {number + 1} of {pairs}", file=sys.stderr)
    return found


def summary(
    pairs: Sequence[tuple[Mapping[str, float], Mapping[str, float]]],
) -> list[dict[str, Any]]:
    """Return a row for each figure: medians of both, and the ratios after/before."""
    rows = []
    for name in pairs[0][0]:
        ratios = sorted(new[name] / old[name] for old, new in pairs)
        rows.append(
            {
                "figure": name,
                "before": statistics.median(old[name] for old, _ in pairs),
                "after": statistics.median(new[name] for _, new in pairs),
                "ratio": round(statistics.median(ratios), 3),
                "least": round(ratios[0], 3),
                "most": round(ratios[-1], 3),
            }
        )
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    rows = summary(in_turn(chosen.before.resolve(), ROOT, chosen.pairs))
    if chosen.json:
        print(json.dumps({"pairs": chosen.pairs, "rows": rows}))
        return
    print(f"{'figure':34} {'before':>9} {'after':>9} {'ratio':>7}   least..most")
    for row in rows:
        print(
            f"{row['figure']:34} {row['before']:9.4f} {row['after']:9.4f} {row['ratio']:7.3f}"
            f"   {row['least']:.2f}..{row['most']:.2f}"
        )


if __name__ == "__main__":
    main()

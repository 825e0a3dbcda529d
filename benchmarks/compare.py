"""Run two checkouts of EdgeFed alternately on one machine, to see whether one is slower.

Each pair runs the same benchmarks in both checkouts, in alternating order, so that a drift of the
machine's speed affects both. The ratio is computed for each pair; quote the median.

    python -m benchmarks.compare ../before [--pairs 10] [--json]

``../before`` is a checkout with a ``.venv`` of its own (``git worktree add ../before REV``, then
``make setup`` there).
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.shared.harness import ROOT, pairs, parser, printed_by, show

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
    program = str(checkout / ".venv" / "bin" / "python")
    printed = printed_by(name, *words, "--json", program=program, folder=checkout)
    return dict(json.loads(printed.strip().splitlines()[-1]))


def summary(
    measured: Sequence[tuple[Mapping[str, float], Mapping[str, float]]],
) -> list[dict[str, Any]]:
    """Return a row for each figure: medians of both, and the ratios after/before."""
    rows = []
    for name in measured[0][0]:
        ratios = sorted(new[name] / old[name] for old, new in measured)
        rows.append(
            {
                "figure": name,
                "before": statistics.median(old[name] for old, _ in measured),
                "after": statistics.median(new[name] for _, new in measured),
                "ratio": round(statistics.median(ratios), 3),
                "least": round(ratios[0], 3),
                "most": round(ratios[-1], 3),
            }
        )
    return rows


def main() -> None:
    """Measure and print."""
    command = parser("compare", __doc__, pairs=10)
    command.add_argument("before", type=Path, help="the other checkout")
    options = command.parse_args()
    before = options.before.resolve()
    measured = []
    for pair in pairs(partial(measure, before), partial(measure, ROOT), options.pairs):
        measured.append(pair)
        print(f"pair {len(measured)} of {options.pairs}", file=sys.stderr)
    rows = summary(measured)
    show(options, {"pairs": options.pairs, "rows": rows})


if __name__ == "__main__":
    main()

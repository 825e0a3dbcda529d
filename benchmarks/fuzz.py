"""Feed random and broken input to everything that reads what others send or supply.

Hypothesis makes the inputs, the same ones for a seed. Every target has a process of its own with
bounded memory; an input may take 20 seconds of processor time. Anything but an error of EdgeFed's
own is a crash, at which its target stops.

    python -m benchmarks.fuzz [--inputs 20000] [--files 2000] [--seed 0] [--corpus FOLDER]
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.fuzzing.running import Report, in_own_process
from benchmarks.fuzzing.targets import TARGETS


def shares(inputs: int, kind: str) -> dict[str, int]:
    """Return how many inputs each target of a kind gets; at least so many in all."""
    chosen = [target for target in TARGETS.values() if target.kind == kind]
    whole = sum(target.share for target in chosen)
    return {target.name: math.ceil(inputs * target.share / whole) for target in chosen}


def table(reports: Sequence[Report]) -> str:
    """Return the reports for people."""
    head = f"{'target':<13}{'inputs':>9}{'crashes':>9}{'s':>8}{'+MB':>7}{'slowest ms':>12}"
    lines = [f"{head}  outcomes"]
    for report in reports:
        outcomes = ", ".join(
            f"{code} {count}" for code, count in Counter(report.outcomes).most_common()
        )
        lines.append(
            f"{report.target:<13}{report.inputs:>9}{len(report.crashes):>9}{report.seconds:>8.1f}"
            f"{report.memory / 2**20:>7.1f}{1000 * report.slowest[0]:>12.1f}  {outcomes}"
        )
    return "\n".join(lines)


def main() -> None:
    """Feed the targets one after another, and print a table; exit with 1 after a crash."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fuzz", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--inputs", type=int, default=20_000, help="messages and blobs")
    parser.add_argument("--files", type=int, default=2_000, help="files that users supply")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", help="only this one")
    parser.add_argument("--corpus", type=Path, help="write the first input of each outcome there")
    arguments = parser.parse_args()
    counts = {**shares(arguments.inputs, "wire"), **shares(arguments.files, "file")}
    reports = []
    for name, count in counts.items():
        if count and arguments.target in (None, name):
            reports.append(in_own_process(name, count, arguments.seed, arguments.corpus))
            print(f"{name}: {count}", file=sys.stderr)
    print(table(reports))
    crashes = [crash for report in reports for crash in report.crashes]
    print("\n".join(crashes), file=sys.stderr)
    raise SystemExit(1 if crashes else 0)


if __name__ == "__main__":
    main()

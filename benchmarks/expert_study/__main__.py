"""Compare federated mixtures of experts with personal models, with clusters, and with FedAvg.

``accuracy``: all methods on label-skewed devices, and on new devices that never trained. Settings
are chosen on other samples with another seed; only the chosen ones are tested. ``ablation``: other
settings of four experts. ``permutation``: whether experts find out which devices' labels are
permuted alike.

    python -m benchmarks.expert_study --data DIR [--work DIR] [--only PART …] [--methods NAME …]
        [--seeds 3] [--json]

DIR holds ``mnist/mnist.npz``; without it, scikit-learn's digits are used. Every finished run is a
line in ``runs.jsonl`` in the work folder, and is not repeated.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.expert_study import accuracy, permutation
from benchmarks.expert_study.methods import ABLATIONS, EVERY, METHODS, Setup
from benchmarks.expert_study.runs import Runner
from edgefed.console import columns

PARTS = ("accuracy", "ablation", "permutation")
DIGITS = Setup(devices=18, new=6, samples=36, cohort=6, batch_size=9, model={"name": "cnn"})
"""The set-up of the digits, of which there are 1,797."""


def main() -> None:
    """Run the study and print its tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.expert_study", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("expert-study"))
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--methods", nargs="*", choices=list(EVERY), default=None)
    parser.add_argument("--seeds", type=int, choices=range(1, 11), default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    runner = Runner(options.work, not options.json)
    mnist = (options.data / "mnist/mnist.npz").exists()
    setup = Setup() if mnist else DIGITS
    seeds = range(1, options.seeds + 1)
    found: dict[str, Any] = {}
    for part, methods in (("accuracy", METHODS), ("ablation", ABLATIONS)):
        if part in options.only:
            wanted = [each for each in methods if each in (options.methods or methods)]
            rows = accuracy.Study(setup, options.data, runner, seeds).rows(wanted)
            found[part] = [row.to_json() for row in rows]
            _tell(options.json, part, accuracy.table(rows))
    if "permutation" in options.only:
        permuted = permutation.Setup() if mnist else permutation.Setup(samples=80, batch_size=20)
        clusterings = [
            permutation.row(permuted, experts, start, options.data, runner, range(1, 6))
            for start in permutation.STARTS
            for experts in (3, 4, 5)
        ]
        found["permutation"] = [row.to_json() for row in clusterings]
        _tell(options.json, "permutation", permutation.table(clusterings))
    if options.json:
        print(json.dumps(found, indent=2))


def _tell(silent: bool, part: str, rows: list[tuple[str, ...]]) -> None:
    if not silent:
        print(f"\n{part}\n{columns(rows)}", flush=True)


if __name__ == "__main__":
    main()

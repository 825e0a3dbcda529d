"""Compare matched averaging with FedAvg, FedProx and pooled training on two cores.

Settings are chosen on samples that no test sees, with another seed; only the chosen ones are
tested. ``one-shot``: runs of one round, and what devices' networks are worth alone and averaged.
``rounds``: runs of many rounds, by rounds, by bytes and by epochs of local training.
``settings``: other settings of FedMA, on the samples that settings are chosen on.

    python -m benchmarks.matching_study --data DIR [--work DIR] [--setups NAME …] [--only PART …]
        [--methods NAME …] [--epochs E …] [--seeds 3] [--tables] [--json]

DIR holds ``mnist/mnist.npz`` and ``shakespeare/shakespeare_roles.jsonl``. Every finished run is a
file in the work folder and is not repeated. ``--tables`` prints what is known and runs nothing.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.matching_study import tables
from benchmarks.matching_study.methods import METHODS, SETUPS, cases
from benchmarks.matching_study.runs import Runner
from benchmarks.matching_study.study import Study
from edgefed.console import columns

PARTS = ("one-shot", "rounds", "settings")


def main() -> None:
    """Run the study and print its tables."""
    options = _options()
    runner = Runner(options.work, not options.json, options.tables)
    found: dict[str, Any] = {}
    for name in options.setups:
        study = Study(SETUPS[name], options.data, runner, range(1, options.seeds + 1))
        for part in options.only:
            found[f"{name}, {part}"], titled = _part(study, part, options)
            if not options.json:
                for title, table in titled:
                    print(f"\n{name}, {part}: {title}\n{columns(table)}", flush=True)
    if options.json:
        print(json.dumps(found, indent=2))


def _part(study: Study, part: str, options: argparse.Namespace) -> tuple[Any, tables.Titled]:
    """Return a part of the study as JSON has it, and its tables."""
    if part == "settings":
        scores = study.settings()
        return scores, [("accuracy on the samples kept apart", tables.settings(scores))]
    wanted = [
        case
        for case in cases(study.setup, part)
        if case.method in (options.methods or study.setup.methods)
        and case.epochs in (options.epochs or [case.epochs])
    ]
    rows = [row for row in map(study.row, wanted) if row is not None]
    local = study.locals() if part == "one-shot" and not options.methods else {}
    return tables.as_json(rows, local), tables.of(study.setup, part, rows, local)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.matching_study", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("matching-study"))
    parser.add_argument("--setups", nargs="*", choices=list(SETUPS), default=list(SETUPS))
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--methods", nargs="*", choices=list(METHODS), default=None)
    parser.add_argument("--epochs", nargs="*", type=int, default=None)
    parser.add_argument("--seeds", type=int, choices=range(1, 11), default=3)
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()

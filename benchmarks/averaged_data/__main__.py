"""Compare six methods, with and without averaged data, on label-skewed and writer-skewed data.

For each set-up a part of the training samples is held out for validation. Each method's learning
rate and own setting are chosen on it alone; only the chosen ones are evaluated on the test set,
once, with other seeds. Scores are means of the last five evaluations; a target is nine tenths of
FedAvg's validation score.

    python -m benchmarks.averaged_data --data DIR [--work DIR] [--only NAME …] [--seeds 5] [--json]

DIR holds ``mnist/mnist.npz`` with ``mnist_writers.npz``, ``fashion_mnist/fashion_mnist.npz`` and
``cifar10/cifar10_jpeg.npz``. Finished runs in the work folder are not repeated.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shared.harness import parser, show, table
from benchmarks.studies.data import read, tune_and_test
from benchmarks.studies.runs import Run, Runner
from benchmarks.studies.trials import Row, Tables, each, merged, read_tables, rows_of
from edgefed.simulator.sweep.statistics import spread

LAST = 5
"""Tests that make a score."""

TUNING_SEEDS = (101, 102)
TEST_SAMPLES = 2000
KEPT_APART = 1500
RATES = (0.03, 0.1)


@dataclass(frozen=True)
class Setup:
    """One experiment.

    Attributes:
        file: of the data, below the data folder.
        train: training samples that the devices share out; 0 for those of ``writers``.
        writers: how many writers take part; 0 where samples have none.
        recipe: its tables over those of all.
    """

    file: str
    train: int = 0
    writers: int = 0
    recipe: Tables = field(default_factory=dict)


TABLES = read_tables(__file__)
METHODS: Mapping[str, Sequence[Tables]] = TABLES["methods"]
SETUPS = each(Setup, TABLES["setups"])


def prepare(setup: Setup, data: Path, folder: Path) -> dict[str, Path]:
    """Write the set-up's two data sets: one to tune on, one to test on; return them by name."""
    arrays, rng = read(data / setup.file, folder.parent), np.random.default_rng(7)
    order = rng.permutation(len(arrays["y_train"]))
    if setup.writers:
        chosen = rng.choice(np.unique(arrays["writer_train"]), setup.writers, replace=False)
        inside = np.isin(arrays["writer_train"][order], chosen)
        train, apart = order[inside], order[~inside][:KEPT_APART]
    else:
        train, apart = np.split(order[: setup.train + KEPT_APART], [setup.train])
    tested = rng.permutation(len(arrays["y_test"]))[:TEST_SAMPLES]
    more = {"groups_train": arrays["writer_train"][train]} if setup.writers else {}
    return tune_and_test(folder, arrays, train, apart, tested, **more)


def choices(setup: Setup, method: str) -> dict[str, Tables]:
    """Return the tables of everything that a method is tuned over, by the words for it."""
    algorithm = method.split(maxsplit=1)[0]
    found = {}
    for rate, own in itertools.product(RATES, METHODS[method]):
        words = " ".join([*(f"{key}={value}" for key, value in own.items()), f"rate={rate}"])
        tables = {
            "algorithm": {"name": algorithm, **own},
            "training": {"learning_rate": rate},
        }
        found[words] = merged(TABLES["recipe"], setup.recipe, tables)
    return found


def study(name: str, data: Path, seeds: Sequence[int], runner: Runner) -> list[Row]:
    """Return the rows of one set-up: tuned on samples kept apart, then tested."""
    setup = SETUPS[name]
    files = prepare(setup, data, runner.folder / name)
    methods = {method: choices(setup, method) for method in METHODS}
    return rows_of(name, runner, files, methods, {"tune": TUNING_SEEDS, "test": seeds}, LAST)


def figures(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return what ``--json`` has of the rows of one set-up; FedAvg's is the first."""
    target = round(0.9 * rows[0].tuning[rows[0].chosen], 2)
    found = []
    for row in rows:
        finished = [run for run in row.runs if run.ended == "finished"]
        reached = [rounds_to(run, target) for run in finished]
        found.append(
            {
                "setup": row.setup,
                "method": row.method,
                "settings": row.chosen,
                "accuracy": spread([run.score(last=LAST) for run in finished]),
                "target": target,
                "rounds_to_target": spread([each for each in reached if each is not None]),
                "failed": len(row.runs) - len(finished),
                "tuning": row.tuning,
            }
        )
    return found


def rounds_to(run: Run, target: float) -> int | None:
    """Return the first round of a run whose accuracy is at least the target."""
    tests = ((row["round"], row.get("accuracy")) for row in run.rows)
    return next((number for number, each in tests if each is not None and each >= target), None)


def main() -> None:
    """Run the study and print its table."""
    work = Path("averaged-data-study")
    command = parser("averaged_data", __doc__, data=Path, work=work, only=SETUPS, seeds=5)
    options = command.parse_args()
    runner, seeds = Runner(options.work, not options.json), range(1, options.seeds + 1)
    rows = [
        row for name in options.only for row in figures(study(name, options.data, seeds, runner))
    ]
    text = [{**row, "reached by": row["rounds_to_target"].count} for row in rows]
    show(options, rows, table(text, without={"tuning"}), indent=2)


if __name__ == "__main__":
    main()

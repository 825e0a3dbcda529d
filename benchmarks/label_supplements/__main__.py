"""Compare supplements of missing labels with each other, and with other methods for skewed labels.

Every device holds samples of one or two labels. For each set-up a part of the training samples is
held out. Each method's optimiser and own setting are chosen on it alone; only the chosen ones are
evaluated on the test set, with other seeds. Scores are means of the last five evaluations.

    python -m benchmarks.label_supplements --data DIR [--work DIR] [--only NAME …]
        [--methods NAME …] [--seeds 5] [--jobs 2] [--json]

DIR holds ``mnist/mnist.npz``; without it, scikit-learn's digits are used. Every finished run is a
file in the work folder, and is not repeated.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.shared.harness import parser, show, table
from benchmarks.studies.data import images, tune_and_test
from benchmarks.studies.runs import Runner, difference
from benchmarks.studies.trials import Row, Tables, each, merged, read_tables, rows_of
from edgefed.simulator.sweep.statistics import spread

LAST = 5
"""Evaluations that make a score."""

TUNING_SEEDS = (101,)
ORDER = ("none", "noise", "half", "mixes", "IID")
"""Methods from the worst to the best, as published."""


@dataclass(frozen=True)
class Method:
    """What devices train with.

    Attributes:
        recipe: its tables over those of all.
        grid: settings of the algorithm that it is tuned over.
        published: accuracy in table 1 of the paper, which has one label on each device.
    """

    recipe: Tables = field(default_factory=dict)
    grid: Sequence[Tables] = ({},)
    published: float | None = None


@dataclass(frozen=True)
class Setup:
    """One experiment.

    Attributes:
        trainings: optimisers that each method is tuned over.
        methods: that are compared.
        labels: on each device.
        digits: whether scikit-learn's digits are used even where MNIST is.
        train, apart, tested: samples that devices train on, that are held out, and of the test set.
        recipe: its tables over those of all; without a model LeNet-5, or a smaller one for digits.
    """

    trainings: Sequence[str]
    methods: Sequence[str] = ("none", "noise")
    labels: int = 1
    digits: bool = False
    train: int = 6000
    apart: int = 2000
    tested: int = 5000
    recipe: Tables = field(default_factory=dict)


TABLES = read_tables(__file__)
METHODS = each(Method, TABLES["methods"])
SETUPS = each(Setup, TABLES["setups"])


def prepare(setup: Setup, data: Path, folder: Path) -> tuple[str, dict[str, Path]]:
    """Write the set-up's two data sets: one to tune on, one to test on; return them by name.

    Returns:
        The name of a network for the images, and the files.
    """
    arrays, rng = images(data, setup.digits), np.random.default_rng(7)
    network = "cnn" if arrays["x_train"].shape[1] == 8 else "lenet5"
    order = rng.permutation(len(arrays["y_train"]))
    apart, train = np.split(order[: setup.apart + setup.train], [setup.apart])
    tested = rng.permutation(len(arrays["y_test"]))[: setup.tested]
    return network, tune_and_test(folder, arrays, train, apart, tested)


def choices(setup: Setup, network: str, method: Method) -> dict[str, Tables]:
    """Return the tables of everything that a method is tuned over, by the words for it."""
    given = {"model": {"name": network}, "data": {"classes_per_device": setup.labels}}
    found = {}
    for training, own in itertools.product(setup.trainings, method.grid):
        words = ", ".join([training, *(f"{key} = {value}" for key, value in own.items())])
        chosen = {"training": TABLES["trainings"][training], "algorithm": own}
        found[words] = merged(TABLES["recipe"], given, setup.recipe, method.recipe, chosen)
    return found


def study(
    name: str,
    data: Path,
    seeds: Sequence[int],
    runner: Runner,
    methods: Sequence[str] = tuple(METHODS),
) -> list[Row]:
    """Return the rows of one set-up, of these methods: tuned on samples kept apart, then tested."""
    setup = SETUPS[name]
    network, files = prepare(setup, data, runner.folder / name)
    tried = {
        method: choices(setup, network, METHODS[method])
        for method in setup.methods
        if method in methods
    }
    return rows_of(name, runner, files, tried, {"tune": TUNING_SEEDS, "test": seeds}, LAST)


def scores(row: Row) -> list[float]:
    """Return a row's scores on the test set."""
    return [run.score(last=LAST) for run in row.runs]


def published(row: Row) -> float | None:
    """Return the accuracy in the paper."""
    return METHODS[row.method].published if SETUPS[row.setup].labels == 1 else None


def to_json(row: Row) -> dict[str, Any]:
    """Return a row as ``--json`` has it."""
    return {
        "setup": row.setup,
        "method": row.method,
        "chosen": row.chosen,
        "accuracy": spread(scores(row)),
        "scores": scores(row),
        "published": published(row),
        "tuning": row.tuning,
    }


def main() -> None:
    """Run the study and print its table."""
    lists = {"only": SETUPS, "methods": METHODS}
    work = Path("label-supplements-study")
    command = parser("label_supplements", __doc__, data=Path, work=work, jobs=2, **lists)
    command.add_argument("--seeds", type=int, choices=range(2, 11), default=5)
    options = command.parse_args()
    runner = Runner(options.work, not options.json, options.jobs)
    seeds = range(1, options.seeds + 1)
    rows = {
        name: study(name, options.data, seeds, runner, options.methods) for name in options.only
    }
    every = list(itertools.chain(*rows.values()))
    orders = [f"{name}: {order(own)}" for name, own in rows.items()]
    told = "\n".join([table(compared(every), without={"scores", "tuning"}), *orders])
    show(options, [to_json(row) for row in every], told, indent=2)


def order(rows: Sequence[Row]) -> str:
    """Return the means in the published order, with the sign between each two."""
    means = {row.method: fmean(scores(row)) for row in rows}
    found = [(method, means[method]) for method in ORDER if method in means]
    text = "".join(
        f"{method} {mean:.3f} {'<' if mean < following else '>='} "
        for (method, mean), (_, following) in itertools.pairwise(found)
    )
    return text + "".join(f"{method} {mean:.3f}" for method, mean in found[-1:])


def compared(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return rows for people; differences are from ``none`` of the same set-up, by seed.

    ``within`` is half the width of the 95 % interval.
    """
    base = {row.setup: scores(row) for row in rows if row.method == "none"}
    found = []
    for row in rows:
        found.append(to_json(row))
        if row.method != "none" and row.setup in base:
            by_seed = difference(scores(row), base[row.setup])
            found[-1] |= {"against none": by_seed.mean, "within": by_seed.margin}
    return found


if __name__ == "__main__":
    main()

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.label_supplements.setups import (
    METHODS,
    ORDER,
    SETUPS,
    Method,
    Setup,
    choices,
    recipe_of,
)
from benchmarks.shared.harness import parser, show
from benchmarks.studies.data import images, tune_and_test
from benchmarks.studies.runs import Runner, best_of, difference, spoken
from edgefed.config.recipes.recipe import Recipe
from edgefed.simulator.sweep.statistics import spread
from edgefed.terminal.console import columns

LAST = 5
"""Evaluations that make a score."""


def prepare(setup: Setup, data: Path, folder: Path) -> tuple[str, dict[str, Path]]:
    """Write the set-up's two data sets: one to tune on, one to test on; return them by name.

    Returns:
        The name of a network for the images, and the files.
    """
    arrays, rng = images(data, setup.digits), np.random.default_rng(7)
    network = setup.network or ("cnn" if arrays["x_train"].shape[1] == 8 else "lenet5")
    order = rng.permutation(len(arrays["y_train"]))
    apart, train = np.split(order[: setup.apart + setup.train], [setup.apart])
    tested = rng.permutation(len(arrays["y_test"]))[: setup.tested]
    return network, tune_and_test(folder, arrays, train, apart, tested)


# -- the study -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One method in one set-up.

    Attributes:
        chosen: the optimiser and the setting that were chosen for it.
        scores: on the test set, one for each seed.
        tuning: mean score on the samples kept apart, by choice; empty where there was none.
    """

    setup: str
    method: str
    chosen: str
    scores: tuple[float, ...]
    tuning: Mapping[str, float]

    @property
    def published(self) -> float | None:
        """Accuracy in the paper, which has one label on each device."""
        return METHODS[self.method].published if SETUPS[self.setup].labels == 1 else None

    def to_json(self) -> dict[str, Any]:
        """Return the row as ``--json`` has it."""
        return {
            "setup": self.setup,
            "method": self.method,
            "chosen": self.chosen,
            "accuracy": spread(self.scores).__dict__,
            "scores": list(self.scores),
            "published": self.published,
            "tuning": dict(self.tuning),
        }


def study(
    name: str,
    data: Path,
    seeds: Sequence[int],
    runner: Runner,
    methods: Sequence[str] = tuple(METHODS),
) -> list[Row]:
    """Return the rows of one set-up, of these methods: tuned on samples kept apart, then tested."""
    setup, rows = SETUPS[name], []
    network, files = prepare(setup, data, runner.folder / name)
    for method in (each for each in setup.methods if each in methods):
        own = choices(METHODS[method], setup.trainings)

        def recipe(
            words: str,
            part: str,
            method: Method = METHODS[method],
            own: Mapping[str, Mapping[str, Any]] = own,
        ) -> Recipe:
            return recipe_of(setup, network, files[part], method, own[words])

        case, (best, *others) = f"{name}, {method}", own
        tuning: Mapping[str, float] = {}
        if others:
            recipes = {words: recipe(words, "tune") for words in own}
            tuning = runner.tuning(f"{case}, tuned", recipes, setup.tuning, LAST)
            best = best_of(tuning)
        runs = runner.seeds(f"{case}, tested", recipe(best, "test"), seeds)
        rows.append(Row(name, method, best, tuple(r.score(last=LAST) for r in runs), tuning))
    return rows


def main() -> None:
    """Run the study and print its table."""
    lists = {"only": SETUPS, "methods": METHODS}
    work = Path("label-supplements-study")
    command = parser("label_supplements", __doc__, data=Path, work=work, jobs=2, **lists)
    command.add_argument("--seeds", type=int, choices=range(2, 11), default=5)
    options = command.parse_args()
    runner = Runner(options.work, not options.json, options.jobs)
    seeds = range(1, options.seeds + 1)
    rows = [
        row
        for name in options.only
        for row in study(name, options.data, seeds, runner, options.methods)
    ]
    orders = [
        f"{name}: {order([row for row in rows if row.setup == name])}" for name in options.only
    ]
    told = "\n".join([columns(table(rows)), *orders])
    show(options, [row.to_json() for row in rows], told, indent=2)


def order(rows: Sequence[Row]) -> str:
    """Return the means in the published order, with the sign between each two."""
    means = {row.method: fmean(row.scores) for row in rows}
    found = [(method, means[method]) for method in ORDER if method in means]
    text = "".join(
        f"{method} {mean:.3f} {'<' if mean < following else '>='} "
        for (method, mean), (_, following) in pairwise(found)
    )
    return text + "".join(f"{method} {mean:.3f}" for method, mean in found[-1:])


def table(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the rows as text; differences are from ``none`` of the same set-up, by seed."""
    base = {row.setup: row.scores for row in rows if row.method == "none"}
    found: list[tuple[str, ...]] = [
        ("SET-UP", "METHOD", "CHOSEN", "PUBLISHED", "TEST ACCURACY", "AGAINST NONE")
    ]
    for row in rows:
        against = ""
        if row.method != "none" and row.setup in base:
            by_seed = difference(row.scores, base[row.setup])
            against = f"{by_seed.mean:+.3f} ± {by_seed.margin or 0:.3f}"
        published = "" if row.published is None else f"{row.published:.3f}"
        found.append(
            (row.setup, row.method, row.chosen, published, spoken(spread(row.scores)), against)
        )
    return found


if __name__ == "__main__":
    main()

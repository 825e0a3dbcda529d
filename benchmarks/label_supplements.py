"""Compare supplements of missing labels with each other, and with other methods for skewed labels.

Every device holds samples of one or two labels. For each set-up a part of the training samples is
held out. Each method's optimiser and own setting are chosen on it alone; only the chosen ones are
evaluated on the test set, with other seeds. Scores are means of the last five evaluations.

    python -m benchmarks.label_supplements --data DIR [--work DIR] [--only NAME …]
        [--methods NAME …] [--seeds 5] [--jobs 2] [--json]

DIR holds ``mnist/mnist.npz``; without it, scikit-learn's digits are used. Every finished run is a
line in ``runs.jsonl`` in the work folder, and is not repeated.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.label_study.methods import METHODS, ORDER, SETUPS, Setup, choices, recipe_of
from benchmarks.label_study.runs import Runner
from edgefed.config.recipe import Recipe
from edgefed.console import columns
from edgefed.learn.types import Array
from edgefed.simulator.sweep.table import spread

STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""The 97.5 % quantile of Student's t, from one degree of freedom on."""


# -- data -----------------------------------------------------------------------------------------


def read(data: Path, digits: bool) -> tuple[str, dict[str, Array]]:
    """Return a network, and the images and labels that it is for."""
    path = data / "mnist/mnist.npz"
    if path.exists() and not digits:
        return "lenet5", dict(np.load(path, allow_pickle=False))
    from sklearn.datasets import load_digits  # not needed where MNIST is

    found = load_digits()
    images = (found.images * (255 / 16)).astype(np.uint8)
    order = np.random.default_rng(1).permutation(len(images))
    parts = {"train": order[:1400], "test": order[1400:]}
    arrays = {f"x_{part}": images[rows] for part, rows in parts.items()}
    return "cnn", arrays | {f"y_{part}": found.target[rows] for part, rows in parts.items()}


def prepare(setup: Setup, data: Path, folder: Path) -> tuple[str, dict[str, Path]]:
    """Write the set-up's two data sets: one to tune on, one to test on; return them by name."""
    network, arrays = read(data, setup.digits)
    network = setup.network or network
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, Path] = {}
    rng = np.random.default_rng(7)
    order = rng.permutation(len(arrays["y_train"]))
    apart, train = np.split(order[: setup.apart + setup.train], [setup.apart])
    tested = rng.permutation(len(arrays["y_test"]))[: setup.tested]
    held = {"tune": ("train", apart), "test": ("test", tested)}
    for name, (part, rows) in held.items():
        whole: dict[str, Any] = {
            "x_train": arrays["x_train"][train],
            "y_train": arrays["y_train"][train],
            "x_test": arrays[f"x_{part}"][rows],
            "y_test": arrays[f"y_{part}"][rows],
            "classes": np.array(10),
        }
        content = hashlib.sha256(b"".join(each.tobytes() for each in whole.values())).hexdigest()
        files[name] = folder / f"{name}-{content[:12]}.npz"  # a result belongs to its content
        if not files[name].exists():
            np.savez(files[name], **whole)
    return network, files


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
    folder: Path,
    seeds: Sequence[int],
    runner: Runner,
    methods: Sequence[str] = tuple(METHODS),
) -> list[Row]:
    """Return the rows of one set-up, of these methods: tuned on samples kept apart, then tested."""
    setup = SETUPS[name]
    setup = replace(setup, methods=tuple(each for each in setup.methods if each in methods))
    network, files = prepare(setup, data, folder / name)

    def recipe(method: str, words: str, part: str) -> Recipe:
        chosen = choices(METHODS[method], setup.trainings)[words]
        return recipe_of(setup, network, files[part], METHODS[method], chosen)

    tuned = {
        (method, words): f"{name}, {method}: {words}"
        for method in setup.methods
        for found in [choices(METHODS[method], setup.trainings)]
        for words in found
        if len(found) > 1
    }
    held = runner.scores({case: recipe(*key, "tune") for key, case in tuned.items()}, setup.tuning)
    means: dict[str, dict[str, float]] = {method: {} for method in setup.methods}
    for (method, words), case in tuned.items():
        means[method][words] = math.fsum(held[case]) / len(held[case])
    only = {each: next(iter(choices(METHODS[each], setup.trainings))) for each in setup.methods}
    best = {method: best_of(found) if found else only[method] for method, found in means.items()}
    final = runner.scores(
        {f"{name}, {each}, tested": recipe(each, best[each], "test") for each in setup.methods},
        seeds,
    )
    return [
        Row(name, each, best[each], tuple(final[f"{name}, {each}, tested"]), means[each])
        for each in setup.methods
    ]


def best_of(means: Mapping[str, float]) -> str:
    """Return the choice with the best mean; one of which a run failed is none."""
    return max(means, key=lambda each: -1.0 if math.isnan(means[each]) else means[each])


def difference(scores: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """Return the mean difference by seed, and half of its 95 % confidence interval."""
    found = spread([one - other for one, other in zip(scores, others, strict=True)])
    if found.mean is None or found.deviation is None:
        return found.mean or 0.0, math.inf
    return found.mean, STUDENT[found.count - 2] * found.deviation / math.sqrt(found.count)


def main() -> None:
    """Run the study and print its table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.label_supplements",
        description=(__doc__ or "").split("\n", 1)[0],
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("label-supplements-study"))
    parser.add_argument("--only", nargs="*", choices=list(SETUPS), default=list(SETUPS))
    parser.add_argument("--methods", nargs="*", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--seeds", type=int, choices=range(2, 11), default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    runner = Runner(options.work, options.jobs, not options.json)
    seeds = range(1, options.seeds + 1)
    rows = [
        row
        for name in options.only
        for row in study(name, options.data, options.work, seeds, runner, options.methods)
    ]
    if options.json:
        print(json.dumps([row.to_json() for row in rows], indent=2))
        return
    print(columns(table(rows)))
    for name in options.only:
        print(f"{name}: {order([row for row in rows if row.setup == name])}")


def order(rows: Sequence[Row]) -> str:
    """Return the means in the published order, with the sign between each two."""
    means = {row.method: math.fsum(row.scores) / len(row.scores) for row in rows}
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
        value = spread(row.scores)
        against = ""
        if row.method != "none" and row.setup in base:
            against = "{:+.3f} ± {:.3f}".format(*difference(row.scores, base[row.setup]))
        published = "" if row.published is None else f"{row.published:.3f}"
        accuracy = f"{value.mean:.3f} ± {value.deviation:.3f}"
        found.append((row.setup, row.method, row.chosen, published, accuracy, against))
    return found


if __name__ == "__main__":
    main()

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shared.harness import parser, show
from benchmarks.studies.data import tune_and_test
from benchmarks.studies.runs import Run, Runner, best_of, spoken
from edgefed.config.recipes.recipe import Recipe
from edgefed.data.images.jpeg import unpacked
from edgefed.learn.base.types import Array
from edgefed.simulator.sweep.statistics import Spread, spread
from edgefed.terminal.console import columns

LAST = 5
"""Tests that make a score."""

TUNING_SEEDS = (101, 102)
TEST_SAMPLES = 2000
KEPT_APART = 1500
RATES = (0.03, 0.1)

METHODS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "fedavg": ({},),
    "fedprox": tuple({"mu": mu} for mu in (0.01, 0.1)),
    "localmix": tuple({"mixup_alpha": alpha} for alpha in (0.2, 1.0)),
    "naivemix": tuple({"mixup_ratio": ratio} for ratio in (0.05, 0.1, 0.2, 0.5)),
    "fedmix": tuple({"mixup_ratio": ratio} for ratio in (0.05, 0.1, 0.2)),
    "fedmix mixed": tuple(
        {"mixup_ratio": ratio, "taylor_labels": "mixed"} for ratio in (0.05, 0.1, 0.2)
    ),
    "globalmix": ({"mixup_alpha": 1.0},),
}
"""Every method, with the settings that it is tuned over; the first word is the algorithm."""


@dataclass(frozen=True)
class Setup:
    """One experiment.

    Attributes:
        file: of the data, below the data folder.
        train: training samples that the devices share out; 0 for those of ``writers``.
        partition: the recipe's keys of who holds what.
        devices, cohort, rounds: of the run.
        normalize: whether inputs are centred and scaled, or left in [0, 1].
        writers: how many writers take part; 0 where samples have none.
    """

    file: str
    train: int
    partition: Mapping[str, Any]
    devices: int
    cohort: int
    rounds: int
    normalize: bool = True
    writers: int = 0


def _classes(count: int) -> dict[str, Any]:
    return {"partition": "classes", "classes_per_device": count}


FASHION, CIFAR = "fashion_mnist/fashion_mnist.npz", "cifar10/cifar10_jpeg.npz"
SETUPS: Mapping[str, Setup] = {
    "mnist-writers": Setup("mnist/mnist.npz", 0, {"partition": "natural"}, 100, 10, 40, True, 100),
    "fashion-1": Setup(FASHION, 4000, _classes(1), 20, 5, 50),
    "fashion-2": Setup(FASHION, 4000, _classes(2), 20, 5, 50),
    "fashion-2-raw": Setup(FASHION, 4000, _classes(2), 20, 5, 50, normalize=False),
    "cifar-2": Setup(CIFAR, 6000, _classes(2), 20, 5, 60),
}


# -- data -----------------------------------------------------------------------------------------


def read(path: Path, cache: Path) -> dict[str, Array]:
    """Return a file's arrays, with JPEG images decoded and writers from the file beside it."""
    arrays = dict(np.load(path, allow_pickle=False))
    for part in ("train", "test"):
        if f"jpeg_{part}" in arrays:
            jpeg, offsets = arrays[f"jpeg_{part}"], arrays[f"offsets_{part}"]
            arrays[f"x_{part}"], _ = unpacked(jpeg, offsets, cache, str(path))
    writers = path.with_name(f"{path.stem}_writers.npz")
    if writers.exists():
        arrays["writer_train"] = np.load(writers, allow_pickle=False)["writer_train"]
    return arrays


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


# -- the study ------------------------------------------------------------------------------------


def recipe_of(setup: Setup, file: Path, rate: float, method: str, own: Mapping[str, Any]) -> Recipe:
    """Return the recipe of one method with its own settings."""
    return Recipe.model_validate(
        {
            "model": {"name": "lenet5"},
            "data": {
                "name": "npz",
                "path": str(file.absolute()),
                "normalize": setup.normalize,
                **setup.partition,
            },
            "algorithm": {"name": method.split(maxsplit=1)[0], **own},
            "training": {"epochs": 2, "batch_size": 10, "learning_rate": rate},
            "rounds": {"count": setup.rounds, "cohort": setup.cohort},
            "evaluation": {"every": 2},
            "simulation": {"devices": setup.devices},
            "wire": {"downlink": "fp32", "uplink": "fp32"},
        }
    )


@dataclass(frozen=True)
class Row:
    """One method in one set-up.

    Attributes:
        settings: what was chosen for it, the learning rate among them.
        accuracy: of the test set, over the seeds that ran.
        rounds: to the target, over the seeds that reached it.
        failed: runs that diverged.
        tuning: the accuracy on the samples kept apart, by setting.
    """

    setup: str
    method: str
    settings: str
    accuracy: Spread
    target: float
    rounds: Spread
    failed: int
    tuning: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """Return the row as ``--json`` has it."""
        return {
            "setup": self.setup,
            "method": self.method,
            "settings": self.settings,
            "accuracy": self.accuracy.__dict__,
            "target": self.target,
            "rounds_to_target": self.rounds.__dict__,
            "failed": self.failed,
            "tuning": dict(self.tuning),
        }


def study(name: str, data: Path, seeds: Sequence[int], runner: Runner) -> list[Row]:
    """Return the rows of one set-up: tuned on samples kept apart, then tested."""
    setup, target, rows = SETUPS[name], 0.0, []
    files = prepare(setup, data, runner.folder / name)
    for method, grid in METHODS.items():
        tried = {
            " ".join([*(f"{key}={value}" for key, value in own.items()), f"rate={rate}"]): (
                *(rate, method, own),
            )
            for rate, own in itertools.product(RATES, grid)
        }
        recipes = {words: recipe_of(setup, files["tune"], *each) for words, each in tried.items()}
        tuning = runner.tuning(f"{name}, {method}, tuned", recipes, TUNING_SEEDS, LAST)
        chosen = best_of(tuning)
        if method == "fedavg":
            target = round(0.9 * tuning[chosen], 2)
        final = recipe_of(setup, files["test"], *tried[chosen])
        runs = runner.seeds(f"{name}, {method}, tested", final, seeds)
        scores = [run.score(last=LAST) for run in runs if run.ended == "finished"]
        reached = [each for run in runs if (each := rounds_to(run, target)) is not None]
        failed = len(seeds) - len(scores)
        row = (name, method, chosen, spread(scores), target, spread(reached), failed, tuning)
        rows.append(Row(*row))
    return rows


def rounds_to(run: Run, target: float) -> int | None:
    """Return the first round of a finished run whose accuracy is at least the target."""
    tests = [(row["round"], row.get("accuracy")) for row in run.rows if run.ended == "finished"]
    return next((number for number, each in tests if each is not None and each >= target), None)


def main() -> None:
    """Run the study and print its table."""
    work = Path("averaged-data-study")
    command = parser("averaged_data", __doc__, data=Path, work=work, only=SETUPS, seeds=5)
    options = command.parse_args()
    runner, seeds = Runner(options.work, not options.json), range(1, options.seeds + 1)
    rows = [row for name in options.only for row in study(name, options.data, seeds, runner)]
    head = ("SET-UP", "METHOD", "CHOSEN", "TEST ACCURACY", "TARGET", "ROUNDS TO IT", "FAILED")
    told = columns([head, *(_text(row, options.seeds) for row in rows)])
    show(options, [row.to_json() for row in rows], told, indent=2)


def _text(row: Row, seeds: int) -> tuple[str, ...]:
    of = f" ({row.rounds.count} of {seeds})" if row.rounds.count < seeds else ""
    return (
        *(row.setup, row.method, row.settings, spoken(row.accuracy) or "never"),
        *(f"{row.target:.2f}", (spoken(row.rounds, "{:.1f}") or "never") + of, str(row.failed)),
    )


if __name__ == "__main__":
    main()

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

import argparse
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgefed.clock import SystemClock
from edgefed.config.recipe import Recipe
from edgefed.console import columns
from edgefed.data.jpeg import unpacked
from edgefed.learn.types import Array
from edgefed.simulator.sweep.plan import Case, Plan
from edgefed.simulator.sweep.results import Result
from edgefed.simulator.sweep.table import Spread, rounds_to, spread
from edgefed.simulator.sweep.trials import Step, run_trials

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
    """Write the set-up's two data sets, unless they are there: one to tune on, one to test on."""
    files = {name: folder / f"{name}.npz" for name in ("tune", "test")}
    if all(path.exists() for path in files.values()):
        return files
    folder.mkdir(parents=True, exist_ok=True)
    arrays, rng = read(data / setup.file, folder.parent), np.random.default_rng(7)
    order = rng.permutation(len(arrays["y_train"]))
    if setup.writers:
        chosen = rng.choice(np.unique(arrays["writer_train"]), setup.writers, replace=False)
        inside = np.isin(arrays["writer_train"][order], chosen)
        train, apart = order[inside], order[~inside][:KEPT_APART]
    else:
        train, apart = np.split(order[: setup.train + KEPT_APART], [setup.train])
    tested = rng.permutation(len(arrays["y_test"]))[:TEST_SAMPLES]
    common = {"x_train": arrays["x_train"][train], "y_train": arrays["y_train"][train]}
    if setup.writers:
        common["groups_train"] = arrays["writer_train"][train]
    held = {"tune": ("train", apart), "test": ("test", tested)}
    for name, (part, rows) in held.items():
        more = {"x_test": arrays[f"x_{part}"][rows], "y_test": arrays[f"y_{part}"][rows]}
        whole: dict[str, Any] = {**common, **more, "classes": np.array(10)}
        np.savez(files[name], **whole)
    return files


# -- runs -----------------------------------------------------------------------------------------


def case(setup: Setup, file: Path, rate: float, method: str, own: Mapping[str, Any]) -> Case:
    """Return the case of one method with its own settings."""
    label = " ".join([method, *(f"{key}={value}" for key, value in own.items())])
    recipe = Recipe.model_validate(
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
    return Case(f"{label} rate={rate}", {"method": method, **own}, recipe)


def score(result: Result) -> float:
    """Return the mean accuracy of the last tests."""
    found = [row["accuracy"] for row in result.history if row.get("accuracy") is not None]
    return math.fsum(found[-LAST:]) / LAST


def mean_score(results: Sequence[Result]) -> float:
    """Return the mean score of several runs."""
    return math.fsum(map(score, results)) / len(results)


def run(
    cases: Sequence[Case], seeds: Sequence[int], folder: Path, tell: bool
) -> dict[str, list[Result]]:
    """Return the results of each case, by its name; a run that failed is left out."""

    def step(now: Step) -> None:
        if tell and now.state in ("done", "failed"):
            told = f"{now.accuracy:.3f}" if now.accuracy is not None else now.reason
            print(f"  {now.number}/{now.total} {now.trial.case.name} {told}", flush=True)

    plan = Plan(tuple(cases), tuple(seeds), None)
    outcome = run_trials(plan, folder, SystemClock(), None, step)
    found: dict[str, list[Result]] = {each.name: [] for each in cases}
    for trial in plan.trials():
        if trial.digest in outcome.results:
            found[trial.case.name].append(outcome.results[trial.digest])
    return found


def best(found: Mapping[str, Sequence[Result]], wanted: int) -> str:
    """Return the case with the best mean score among those that ran with every seed."""
    scores = {
        name: mean_score(results) for name, results in found.items() if len(results) == wanted
    }
    return max(scores, key=scores.__getitem__)


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
    tuning: Mapping[str, float | None]

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


def study(name: str, data: Path, work: Path, seeds: Sequence[int], tell: bool) -> list[Row]:
    """Return the rows of one set-up: tuned on samples kept apart, then tested."""
    setup, folder = SETUPS[name], work / name
    files = prepare(setup, data, folder)
    target, rows = 0.0, []
    for method, grid in METHODS.items():
        tuned = {
            each.name: (each, rate, own)
            for rate, own in itertools.product(RATES, grid)
            for each in [case(setup, files["tune"], rate, method, own)]
        }
        held = run([each for each, _, _ in tuned.values()], TUNING_SEEDS, folder, tell)
        chosen = best(held, len(TUNING_SEEDS))
        if method == "fedavg":
            target = round(0.9 * mean_score(held[chosen]), 2)
        _, rate, own = tuned[chosen]
        final = case(setup, files["test"], rate, method, own)
        results = run([final], seeds, folder, tell)[final.name]
        reached = [rounds_to(each, target) for each in results]
        rows.append(
            Row(
                name,
                method,
                chosen.removeprefix(method).strip(),
                spread([score(each) for each in results]),
                target,
                spread([each for each in reached if each is not None]),
                len(seeds) - len(results),
                {key: spread([score(each) for each in runs]).mean for key, runs in held.items()},
            )
        )
    return rows


def main() -> None:
    """Run the study and print its table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.averaged_data", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("averaged-data-study"))
    parser.add_argument("--only", nargs="*", choices=list(SETUPS), default=list(SETUPS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [
        row
        for name in options.only
        for row in study(
            name, options.data, options.work, range(1, options.seeds + 1), not options.json
        )
    ]
    if options.json:
        print(json.dumps([row.to_json() for row in rows], indent=2))
        return
    head = ("SET-UP", "METHOD", "CHOSEN", "TEST ACCURACY", "TARGET", "ROUNDS TO IT", "FAILED")
    print(columns([head, *(_text(row, options.seeds) for row in rows)]))


def _text(row: Row, seeds: int) -> tuple[str, ...]:
    def spoken(value: Spread, form: str) -> str:
        if value.mean is None:
            return "never"
        return form.format(value.mean) + (
            f" ± {form.format(value.deviation)}" if value.deviation is not None else ""
        )

    reached = spoken(row.rounds, "{:.1f}")
    of = f" ({row.rounds.count} of {seeds})" if row.rounds.count < seeds else ""
    return (
        row.setup,
        row.method,
        row.settings,
        spoken(row.accuracy, "{:.3f}"),
        f"{row.target:.2f}",
        reached + of,
        str(row.failed),
    )


if __name__ == "__main__":
    main()

"""Measure the regret of following an advice: the accuracy that the best method has beyond it.

Four fleets of 20 devices: Fashion-MNIST with one label each, two labels each and dealt evenly, and
20 writers of MNIST. The profile has the true histograms; the twin has other data: scikit-learn's
digits, or a tenth of the training samples, of which no device has any. Then every candidate is run
on the fleet's own data. Regret is that of the mean accuracy over seeds, in points, beside two other
rules: always FedAvg, and the candidate with the best mean on the other fleets.

    python -m benchmarks.advice --data FOLDER [--out FOLDER] [--seeds 3] [--rounds 30] [--jobs 2]
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.shared.harness import parser, show, table
from edgefed.advise.advising import Wishes, advise
from edgefed.advise.candidates import entrants, recipe_from
from edgefed.advise.profile import DeviceProfile, Profile
from edgefed.advise.race import score_of
from edgefed.advise.stand_in import StandIn
from edgefed.api.recipe_source import checked
from edgefed.config.recipes.recipe import Recipe
from edgefed.data.devices.partition import deal, label_counts
from edgefed.data.sets.datasets import load
from edgefed.process.clock import SystemClock
from edgefed.simulator.sweep.plan import Plan
from edgefed.simulator.sweep.trials import TrialOutcome, run_trials

DEVICES, SAMPLES = 20, 150
METHODS = ("fedavg", "fedprox", "fedopt", "scaffold", "feddyn", "fedmix")
STAND_INS = ("digits", "tenth")

FASHION, MNIST = "fashion_mnist/fashion_mnist.npz", "mnist/mnist.npz"
FLEETS: Mapping[str, Mapping[str, Any]] = {
    "one label": {"path": FASHION, "partition": "classes", "classes_per_device": 1},
    "two labels": {"path": FASHION, "partition": "classes", "classes_per_device": 2},
    "even": {"path": FASHION, "partition": "iid"},
    "writers": {"path": MNIST, "partition": "natural", "min_samples": 80},
}


@dataclass(frozen=True)
class Study:
    """The limits of the measurement; ``pool`` is the folder of the data."""

    pool: Path
    folder: Path
    seeds: tuple[int, ...]
    rounds: int
    jobs: int

    def recipe(self, data: Mapping[str, Any]) -> Recipe:
        """Return the recipe that is advised on, with these data."""
        tables = {
            "name": "advised",
            "model": {"name": "mlp", "hidden": [64]},
            "data": data,
            "rounds": {"count": self.rounds},
            "training": {"epochs": 1, "batch_size": 20, "learning_rate": 0.05},
            "simulation": {"devices": DEVICES},
        }
        return recipe_from(tables, checked)

    def run(self, plan: Plan, folder: Path) -> TrialOutcome:
        """Run the trials of a plan that have no result yet."""
        return run_trials(plan, folder, SystemClock(), jobs=self.jobs)


def main() -> None:
    """Measure and print."""
    options = parser(
        "advice",
        __doc__,
        data=Path,
        out=Path("advice-study"),
        seeds=3,
        rounds=30,
        jobs=2,
        fleets=FLEETS,
        stand_ins=STAND_INS,
    ).parse_args()
    seeds = tuple(range(1, options.seeds + 1))
    study = Study(options.data, options.out.absolute(), seeds, options.rounds, options.jobs)
    reached = {name: _truth(study, name) for name in options.fleets}
    rows = [
        {"fleet": name, "stand_in": stand_in, **_advised(study, name, stand_in, reached)}
        for stand_in in options.stand_ins
        for name in options.fleets
    ]
    figures = {
        "mean_regret": fmean(row["regret"] for row in rows),
        "worst_regret": max(row["regret"] for row in rows),
        "mean_regret_fedavg": fmean(row["regret_fedavg"] for row in rows),
        "mean_regret_others_best": fmean(row["regret_others_best"] for row in rows),
    }
    text = f"{table(rows)}\n\n{table([figures])}"
    show(options, {**figures, "rows": rows, "accuracy": reached}, text)


def _data(study: Study, name: str) -> dict[str, Any]:
    keys = dict(FLEETS[name])
    limit = {} if name == "writers" else {"limit": DEVICES * SAMPLES}
    return {"name": "npz", **keys, **limit, "path": str(_files(study, keys["path"])[0])}


def _files(study: Study, source: str) -> tuple[Path, Path]:
    """Return the data of fleets with these data, and those of their twins, which share none."""
    stem = Path(source).stem
    fleet, tenth = (study.folder / f"{stem}-{part}.npz" for part in ("fleet", "tenth"))
    if not tenth.exists():
        study.folder.mkdir(parents=True, exist_ok=True)
        pool = dict(np.load(study.pool / source, allow_pickle=False))
        writers = study.pool / Path(source).with_name(f"{stem}_writers.npz")
        if writers.exists():
            pool |= np.load(writers, allow_pickle=False)
        apart = np.zeros(len(pool["y_train"]), bool)
        apart[np.random.default_rng(0).permutation(len(apart))[: len(apart) // 10]] = True
        train = {key: pool[key] for key in pool if key.endswith("_train")}
        test = {key: pool[key] for key in ("x_test", "y_test")}
        np.savez(fleet, **test, **{key: array[~apart] for key, array in train.items()})
        np.savez(tenth, x=pool["x_train"][apart], y=pool["y_train"][apart])
    return fleet, tenth


def _truth(study: Study, name: str) -> dict[str, float]:
    """Return the mean accuracy of every candidate on the fleet's own data."""
    recipe = study.recipe(_data(study, name))
    nobody = Profile(refuses=())
    field = entrants(recipe.model_dump(mode="json"), nobody, checked, METHODS)
    plan = Plan(field.cases, study.seeds)
    outcome = study.run(plan, study.folder / "truth")
    scores: dict[str, list[float]] = {case.name: [] for case in field.cases}
    for trial in plan.trials():
        result = outcome.results.get(trial.digest)
        scores[trial.case.name].append((result and score_of(result)) or 0.0)
    return {name: round(fmean(values), 5) for name, values in scores.items()}


def _advised(
    study: Study, name: str, stand_in: str, reached: Mapping[str, Mapping[str, float]]
) -> dict[str, Any]:
    """Return an advice's recommendation, its regret in points, and those of other rules."""
    recipe = study.recipe(_data(study, name))
    folder = study.folder / f"{name.replace(' ', '-')}-{stand_in}"
    wishes = Wishes(3600.0, study.seeds, METHODS, study.jobs)
    began = time.monotonic()
    made = advise(
        recipe,
        _profile(recipe),
        folder,
        wishes,
        checked,
        lambda plan: study.run(plan, folder),
        SystemClock(),
        _stand_in(study, name, stand_in),
    )
    seconds = time.monotonic() - began
    here = reached[name]
    best = max(here.values())
    others = {
        method: fmean(values[method] for fleet, values in reached.items() if fleet != name)
        for method in here
        if len(reached) > 1
    }
    chosen = max(others, key=lambda method: others[method]) if others else "fedavg"
    return {
        "recommended": made.recommended,
        "best": max(here, key=lambda method: here[method]),
        "regret": 100 * (best - here[made.recommended]),
        "regret_fedavg": 100 * (best - here["fedavg"]),
        "regret_others_best": 100 * (best - here[chosen]),
        "seconds": round(seconds, 1),
    }


def _profile(recipe: Recipe) -> Profile:
    """Return what the devices of a fleet with these data would announce."""
    dataset = load(recipe.data, None, seed=recipe.seed)
    shards = deal(dataset, recipe.data, DEVICES, 0.0, recipe.seed)
    devices = tuple(
        DeviceProfile(
            name=f"board-{number}",
            samples=len(shard.train),
            labels=label_counts(shard.train, dataset.classes),
        )
        for number, shard in enumerate(shards)
    )
    return Profile(classes=dataset.classes, shape=dataset.shape, refuses=(), devices=devices)


def _stand_in(study: Study, name: str, stand_in: str) -> StandIn:
    """Return the data of the twin."""
    if stand_in == "digits":
        return StandIn({"name": "digits"})
    return StandIn({"name": "npz", "path": str(_files(study, FLEETS[name]["path"])[1])})


if __name__ == "__main__":
    main()

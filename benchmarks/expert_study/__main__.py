"""Compare federated mixtures of experts with personal models, with clusters, and with FedAvg.

``accuracy``: all methods on label-skewed devices, and on new devices that never trained. Settings
are chosen on other samples with another seed; only the chosen ones are tested. ``ablation``: other
settings of four experts. ``permutation``: whether experts find out which devices' labels are
permuted alike (appendix B of the paper). A device belongs to the expert with its largest share;
after each round experts are matched to permutations one to one, by the assignment that suits most
devices.

    python -m benchmarks.expert_study --data DIR [--work DIR] [--only PART …] [--methods NAME …]
        [--seeds 3] [--json]

DIR holds ``mnist/mnist.npz``; without it, scikit-learn's digits are used. Every finished run is a
file in the work folder, and is not repeated.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.expert_study.device_tests import DeviceTests
from benchmarks.expert_study.samples import dealt, halves, permuted_file, read
from benchmarks.shared.harness import parser, show, table
from benchmarks.studies.data import written
from benchmarks.studies.runs import Look, Observed, Run, Runner, best_of, difference
from benchmarks.studies.trials import Row, Tables, Trials, each, read_tables, recipe_of
from edgefed.algorithms.interface.base import State
from edgefed.config.recipes.recipe import Recipe
from edgefed.data.devices.partition import planted_orders
from edgefed.simulator.sweep.statistics import spread

LAST, BETWEEN = 3, 2
"""Tests that make a score, and the rounds from one to the next."""

TUNING_SEED = 101
MODES = ("known", "start", "average", "fitted", "fitted long", "marginal")


@dataclass(frozen=True)
class Method:
    """What is trained.

    Attributes:
        algorithm: the recipe's table, without the server optimiser.
        personal: the preset of the recipe's ``[personal]`` table.
        wider: factor of the network's channels and units; 2 gives about 4 times the bytes.
        tuned_as: the method whose settings are taken; empty for those of its own.
    """

    algorithm: Tables
    personal: str = "none"
    wider: float = 1.0
    tuned_as: str = ""

    @property
    def mixture(self) -> bool:
        """Whether it is a mixture of experts."""
        return bool(self.algorithm["name"] == "fedmoe")


@dataclass(frozen=True)
class Setup:
    """One experiment.

    Attributes:
        devices, new: that train, and that never do.
        samples: of each device; a quarter of them is held out.
        alpha: concentration of labels, multiplied by each label's share.
        recipe: its tables over those of all.
    """

    devices: int
    samples: int
    new: int = 0
    alpha: float = 1.0
    recipe: Tables = field(default_factory=dict)


TABLES = read_tables(__file__)
METHODS = each(Method, TABLES["methods"])
ABLATIONS = each(Method, TABLES["ablations"])
EVERY: Mapping[str, Method] = {**METHODS, **ABLATIONS}
SETUPS = each(Setup, TABLES["setups"])
PERMUTED = each(Setup, TABLES["permuted"])
PARTS: Mapping[str, Mapping[str, Method]] = {
    "accuracy": METHODS,
    "ablation": ABLATIONS,
    "permutation": {},
}


# -- accuracy and bytes ---------------------------------------------------------------------------


def choices(method: Method) -> Mapping[str, Tables]:
    """Return the tables that a method is tuned over, by the words for them."""
    return {**TABLES["choices"], **(TABLES["table_choices"] if method.mixture else {})}


def tables_of(setup: Setup, method: Method) -> tuple[Tables, ...]:
    """Return the tables of a method's recipe in a set-up."""
    server = TABLES["servers"]["mixture" if method.mixture else "others"]
    own = {
        "algorithm": {**server, **method.algorithm},
        "personal": {"preset": method.personal},
        "model": widened(setup.recipe["model"], method.wider),
        "simulation": {"devices": setup.devices},
    }
    return TABLES["recipe"], setup.recipe, own


def widened(model: Tables, factor: float) -> dict[str, Any]:
    """Return a network with so many times the channels and units."""

    def wider(value: Any) -> Any:
        if isinstance(value, list):
            return [wider(each) for each in value]
        return round(factor * value) if isinstance(value, int) else value

    return {key: wider(value) for key, value in model.items()}


def study(
    name: str, data: Path, seeds: Sequence[int], runner: Runner, methods: Sequence[str]
) -> list[Row]:
    """Return a row for each method in a set-up: tuned on other samples, then tested."""
    setup, arrays = SETUPS[name], halves(read(data))
    files = {TUNING_SEED: _files(setup, arrays["tune"], runner.folder, TUNING_SEED)}
    files |= {seed: _files(setup, arrays["test"], runner.folder, seed) for seed in seeds}

    def look(recipe: Recipe) -> Look:
        return look_of(recipe, None if recipe.seed == TUNING_SEED else files[recipe.seed][1])

    def trials(key: str) -> Trials:
        tables, own = tables_of(setup, EVERY[key]), choices(EVERY[key])

        def recipe(words: str, _: str, seed: int) -> Recipe:
            return recipe_of(files[seed][0], seed, *tables, own[words])

        return Trials(runner, key, recipe, "known", LAST, look)

    tuned: dict[str, dict[str, float]] = {}
    rows = []
    for key in methods:
        source = EVERY[key].tuned_as or key
        if source not in tuned:
            tuned[source] = trials(source).tuned(choices(EVERY[source]), [TUNING_SEED])
        best = best_of(tuned[source])
        tuning = tuned[source] if source == key else {}
        rows.append(Row(name, key, best, tuning, trials(key).tested(best, seeds)))
    return rows


def _files(setup: Setup, arrays: Tables, folder: Path, seed: int) -> tuple[Path, Path]:
    """Return the file of the devices that train, and that of the new ones."""
    known, new = dealt(arrays, (setup.devices, setup.new), setup.samples, setup.alpha, seed)
    return written(folder / "data", "known", known), written(folder / "data", "new", new)


def look_of(recipe: Recipe, new: Path | None) -> Look:
    """Return the tests after the last rounds; without new devices, of known ones only."""
    rounds = recipe.rounds.count
    wanted = range(rounds, max(0, rounds - LAST * BETWEEN), -BETWEEN)
    tests: list[DeviceTests] = []

    def look(number: int, state: State, devices: Observed) -> dict[str, float]:
        if number not in wanted:
            return {}
        if not tests:
            tests.append(DeviceTests.of(recipe, devices.shards, new))
        return tests[0].scores(state, devices.private, last=number == rounds)

    return look


def figures(row: Row) -> dict[str, Any]:
    """Return a row as ``--json`` has it; a mode that the method lacks is missing."""
    found = {mode: [run.score(mode, LAST) for run in row.runs] for mode in MODES}
    scores = {mode: own for mode, own in found.items() if not all(map(math.isnan, own))}
    cohort = SETUPS[row.setup].recipe["rounds"]["cohort"]
    return {
        "method": row.method,
        "chosen": row.chosen,
        "accuracy": {mode: spread(own) for mode, own in scores.items()},
        "scores": scores,
        "bytes_per_device_and_round": spread([traffic(run) / cohort for run in row.runs]),
        "seconds": spread([run.seconds for run in row.runs]),
        "tuning": row.tuning,
    }


def traffic(run: Run) -> float:
    """Return the mean bytes of a round but the last, in which devices also test."""
    moved: list[float] = [row["sent"] + row["received"] for row in run.rows]
    rounds = moved[:-1] or moved
    return sum(rounds) / max(1, len(rounds))


def compared(rows: Sequence[Tables]) -> list[Tables]:
    """Return the figures of rows for people; differences are from FedAvg, by seed."""
    known = {row["method"]: row["scores"].get("known") for row in rows}
    base = known.get("FedAvg")
    return [
        {
            "method": row["method"],
            "chosen": row["chosen"],
            **{mode: row["accuracy"].get(mode) for mode in MODES},
            "against FedAvg": difference(own, base) if base and own else None,
            "bytes a round": row["bytes_per_device_and_round"],
            "seconds": row["seconds"],
        }
        for row, own in zip(rows, known.values(), strict=True)
    ]


# -- clusters of devices --------------------------------------------------------------------------


@dataclass(frozen=True)
class Clusters:
    """How a number of experts with one start finds the devices whose labels are permuted alike.

    Attributes:
        accuracy: of the clustering, one list a seed with one value a round.
        reachable: the best that so many experts can do, by seed.
        pure: whether after the last round no expert has devices of two permutations, by seed.
    """

    experts: int
    start: str
    accuracy: tuple[tuple[float, ...], ...]
    reachable: tuple[float, ...]
    pure: tuple[bool, ...]

    @property
    def rounds(self) -> list[int | None]:
        """By seed, the first round from which on the clustering stays at its best, if any."""
        found: list[int | None] = []
        for values, best in zip(self.accuracy, self.reachable, strict=True):
            wrong = [place for place, each in enumerate(values, 1) if each < best - 1e-9]
            first = (wrong[-1] if wrong else 0) + 1
            found.append(first if first <= len(values) else None)
        return found


def clusters(
    setup: Setup, experts: int, start: str, data: Path, runner: Runner, seeds: Sequence[int]
) -> Clusters:
    """Return the clusters that a number of experts with one start finds."""
    own = {
        "algorithm": {"experts": experts, "start": start},
        "simulation": {"devices": setup.devices},
    }
    tables = (TABLES["permutation_recipe"], setup.recipe, own)

    def recipe(_: str, __: str, seed: int) -> Recipe:
        count = setup.devices * setup.samples
        file = permuted_file(count, data, runner.folder / "data", seed)
        return recipe_of(file, seed, *tables)

    runs = Trials(runner, "permutation", recipe).tested(f"K = {experts}, {start}", seeds)
    orders = [
        planted_orders(recipe("", "", seed).data, setup.devices, seed).tolist() for seed in seeds
    ]
    sizes = [sorted(Counter(own).values(), reverse=True) for own in orders]
    return Clusters(
        experts,
        start,
        tuple(tuple(run.values("cluster_accuracy")) for run in runs),
        tuple(sum(own[:experts]) / sum(own) for own in sizes),
        tuple(run.score("cluster_purity") == 1 for run in runs),
    )


def clusters_rows(rows: Sequence[Clusters]) -> list[Tables]:
    """Return the rows for people; what differs by seed is one value a seed."""
    return [
        {
            "experts": row.experts,
            "start": row.start,
            "round 1": [values[0] for values in row.accuracy],
            "last round": [values[-1] for values in row.accuracy],
            "reachable": row.reachable,
            "from round": [number or "-" for number in row.rounds],
            "pure": f"{sum(row.pure)} of {len(row.pure)}",
        }
        for row in rows
    ]


# -- the command ----------------------------------------------------------------------------------


def main() -> None:
    """Run the study and print its tables."""
    lists = {"only": PARTS, "methods": EVERY}
    command = parser("expert_study", __doc__, data=Path, work=Path("expert-study"), **lists)
    command.add_argument("--seeds", type=int, choices=range(1, 11), default=3)
    options = command.parse_args()
    runner = Runner(options.work, not options.json)
    name = "mnist" if (options.data / "mnist/mnist.npz").exists() else "digits"
    seeds = range(1, options.seeds + 1)
    found: dict[str, Any] = {}
    told: dict[str, Sequence[Tables]] = {}
    for part in (part for part in PARTS if part in options.only):
        if part == "permutation":
            found[part] = [
                clusters(PERMUTED[name], experts, start, options.data, runner, range(1, 6))
                for start, experts in itertools.product(("independent", "updates"), (3, 4, 5))
            ]
            told[part] = clusters_rows(found[part])
        else:
            methods = [each for each in PARTS[part] if each in options.methods]
            found[part] = list(map(figures, study(name, options.data, seeds, runner, methods)))
            told[part] = compared(found[part])
    show(options, found, "\n\n".join(map(table, told.values())), indent=2)


if __name__ == "__main__":
    main()

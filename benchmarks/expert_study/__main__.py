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

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.expert_study.device_tests import DeviceTests
from benchmarks.expert_study.setups import (
    ABLATIONS,
    DIGITS,
    EVERY,
    METHODS,
    PERMUTED_DIGITS,
    STARTS,
    Choice,
    Method,
    Permuted,
    Setup,
    choices,
    dealt,
    halves,
    permuted_file,
    permuted_recipe,
    read,
    recipe_of,
)
from benchmarks.shared.harness import parser, show
from benchmarks.studies.data import written
from benchmarks.studies.runs import Look, Observed, Run, Runner, best_of, difference, spoken
from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.interface.base import State
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.models.run_model import load_dataset, make_model
from edgefed.data.devices.partition import deal, planted_orders
from edgefed.learn.training.trainer import Trainer
from edgefed.seeds import derive
from edgefed.simulator.sweep.statistics import spread
from edgefed.terminal.console import columns

PARTS = ("accuracy", "ablation", "permutation")
LAST, BETWEEN = 3, 2
"""Tests that make a score, and the rounds from one to the next."""

TUNING_SEED = 101
MODES = ("known", "start", "average", "fitted", "fitted long", "marginal")
Files = tuple[Path, Path]
"""Of the devices that train, and of the new ones."""


# -- accuracy and bytes ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One method.

    Attributes:
        chosen: words of its setting.
        scores: by mode, one for each seed; a mode that the method lacks is missing.
        traffic: bytes that a device is sent and sends in a round, one for each seed.
        seconds: of CPU time, one for each seed.
        tuning: accuracy on known devices in the other samples, by setting.
    """

    method: str
    chosen: str
    scores: Mapping[str, tuple[float, ...]]
    traffic: tuple[float, ...]
    seconds: tuple[float, ...] = ()
    tuning: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the row as ``--json`` has it."""
        return {
            "method": self.method,
            "chosen": self.chosen,
            "accuracy": {mode: spread(each).__dict__ for mode, each in self.scores.items()},
            "scores": {mode: list(each) for mode, each in self.scores.items()},
            "bytes_per_device_and_round": spread(self.traffic).__dict__,
            "seconds": spread(self.seconds).__dict__,
            "tuning": dict(self.tuning),
        }


@dataclass(frozen=True)
class Study:
    """The methods of one set-up.

    Attributes:
        data: folder of ``mnist/mnist.npz``.
        seeds: of the tests.
    """

    setup: Setup
    data: Path
    runner: Runner
    seeds: Sequence[int]

    def rows(self, methods: Sequence[str]) -> list[Row]:
        """Return a row for each method: tuned on other samples, then tested."""
        arrays = halves(read(self.data))
        tune = self._files(arrays["tune"], TUNING_SEED)
        test = {seed: self._files(arrays["test"], seed) for seed in self.seeds}
        tuned: dict[str, dict[str, float]] = {}
        rows = []
        for name in methods:
            source = EVERY[name].tuned_as or name
            if source not in tuned:
                tuned[source] = {
                    words: self._run(f"{source}, tuned, {words}", EVERY[source], choice, tune)
                    .score("known", LAST)
                    for words, choice in choices(EVERY[source]).items()
                }  # fmt: skip
            found = tuned[source]
            rows.append(self._row(name, best_of(found), test, found if source == name else {}))
        return rows

    def _files(self, arrays: Mapping[str, Any], seed: int) -> Files:
        setup, folder = self.setup, self.runner.folder / "data"
        parts = dealt(arrays, (setup.devices, setup.new), setup.samples, setup.alpha, seed)
        return written(folder, "known", parts[0]), written(folder, "new", parts[1])

    def _row(
        self, name: str, words: str, files: Mapping[int, Files], tuning: Mapping[str, float]
    ) -> Row:
        method, choice = EVERY[name], choices(EVERY[name])[words]
        runs = [
            self._run(f"{name}, {words}", method, choice, pair, seed)
            for seed, pair in files.items()
        ]
        scores = {mode: tuple(run.score(mode, LAST) for run in runs) for mode in MODES}
        return Row(
            name,
            words,
            {mode: each for mode, each in scores.items() if not all(map(math.isnan, each))},
            tuple(traffic(run) / self.setup.cohort for run in runs),
            tuple(run.seconds for run in runs),
            tuning,
        )

    def _run(
        self, case: str, method: Method, choice: Choice, files: Files, seed: int = TUNING_SEED
    ) -> Run:
        recipe = recipe_of(self.setup, method, choice, files[0], seed)
        new = None if seed == TUNING_SEED else files[1]
        run = self.runner.run(case, recipe, self._look(recipe, new))
        assert run is not None
        return run

    def _look(self, recipe: Recipe, new: Path | None) -> Look:
        """Return the tests after the last rounds; without new devices, of known ones only."""
        rounds = self.setup.rounds
        wanted = range(rounds, max(0, rounds - LAST * BETWEEN), -BETWEEN)
        tests: list[DeviceTests] = []

        def look(number: int, state: State, devices: Observed) -> dict[str, float]:
            if number not in wanted:
                return {}
            if not tests:
                tests.append(device_tests(recipe, devices, new))
            return tests[0].scores(state, devices.private, last=number == rounds)

        return look


def device_tests(recipe: Recipe, devices: Observed, file: Path | None) -> DeviceTests:
    """Return the tests of a run on the devices that train, and on those of another file."""
    everyone = recipe.rounds.model_copy(update={"cohort": 0})
    algorithm = make(recipe.model_copy(update={"rounds": everyone}))
    dataset = load_dataset(recipe, None)
    model = make_model(recipe, dataset.shape, dataset.classes, 0)
    algorithm.check_model(model)
    new = {}
    if file is not None:
        section = recipe.data.model_copy(update={"path": str(file.absolute())})
        other = load_dataset(recipe.model_copy(update={"data": section}), None)
        count = len(set(other.groups.tolist())) if other.groups is not None else 0
        shards = deal(other, section, count, recipe.simulation.holdout or 0.0, recipe.seed)
        new = {f"new-{number:02d}": shard for number, shard in enumerate(shards)}
    seed = derive(recipe.seed, "device tests")
    preset = recipe.personal.preset
    return DeviceTests(algorithm, Trainer(model), devices.shards, new, preset, seed)


def traffic(run: Run) -> float:
    """Return the mean bytes of a round but the last, in which devices also test."""
    moved: list[float] = [row["sent"] + row["received"] for row in run.rows]
    rounds = moved[:-1] or moved
    return sum(rounds) / max(1, len(rounds))


def table(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the rows as text; differences are from FedAvg, by seed."""
    base = {row.method: row.scores for row in rows}.get("FedAvg", {})
    head = ("METHOD", "CHOSEN", "KNOWN", "AGAINST FEDAVG", "NEW, AS THEY START", "NEW, AVERAGE")
    found: list[tuple[str, ...]] = [
        (*head, "NEW, FITTED", "NEW, FITTED LONG", "NEW, MARGINAL", "KB A ROUND", "CPU S")
    ]
    for row in rows:
        against = ""
        if "known" in base and row.method != "FedAvg":
            against = spoken(difference(row.scores["known"], base["known"]), "{:+.3f}")
        modes = [spoken(spread(row.scores.get(mode, ()))) for mode in MODES]
        kilobytes = spoken(spread([each / 1000 for each in row.traffic]), "{:.0f}")
        seconds = spoken(spread(row.seconds), "{:.0f}")
        found.append((row.method, row.chosen, modes[0], against, *modes[1:], kilobytes, seconds))
    return found


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
    setup: Permuted, experts: int, start: str, data: Path, runner: Runner, seeds: Sequence[int]
) -> Clusters:
    """Return the clusters that a number of experts with one start finds."""
    accuracy, reachable, pure = [], [], []
    for seed in seeds:
        file = permuted_file(setup, data, runner.folder / "data", seed)
        recipe = permuted_recipe(setup, experts, start, file, seed)
        run = runner.run(f"permutation, K = {experts}, {start}, {seed}", recipe)
        assert run is not None
        orders = planted_orders(recipe.data, setup.devices, seed).tolist()
        sizes = sorted(Counter(orders).values(), reverse=True)
        accuracy.append(tuple(run.values("cluster_accuracy")))
        reachable.append(sum(sizes[:experts]) / len(orders))
        pure.append(run.score("cluster_purity") == 1)
    return Clusters(experts, start, tuple(accuracy), tuple(reachable), tuple(pure))


def clusters_table(rows: Sequence[Clusters]) -> list[tuple[str, ...]]:
    """Return the rows as text."""
    found: list[tuple[str, ...]] = [
        ("EXPERTS", "START", "ROUND 1", "ROUND 10", "REACHABLE", "FROM ROUND", "PURE")
    ]
    for each in rows:
        first = " ".join(f"{values[0]:.2f}" for values in each.accuracy)
        last = " ".join(f"{values[-1]:.2f}" for values in each.accuracy)
        best = " ".join(f"{value:.2f}" for value in each.reachable)
        rounds = " ".join(str(number or "-") for number in each.rounds)
        pure = f"{sum(each.pure)} of {len(each.pure)}"
        found.append((str(each.experts), each.start, first, last, best, rounds, pure))
    return found


# -- the command ----------------------------------------------------------------------------------


def main() -> None:
    """Run the study and print its tables."""
    lists = {"only": PARTS, "methods": EVERY}
    command = parser("expert_study", __doc__, data=Path, work=Path("expert-study"), **lists)
    command.add_argument("--seeds", type=int, choices=range(1, 11), default=3)
    options = command.parse_args()
    runner = Runner(options.work, not options.json)
    mnist = (options.data / "mnist/mnist.npz").exists()
    study = Study(Setup() if mnist else DIGITS, options.data, runner, range(1, options.seeds + 1))
    found: dict[str, Any] = {}
    tables: dict[str, list[tuple[str, ...]]] = {}
    for part, methods in (("accuracy", METHODS), ("ablation", ABLATIONS)):
        if part in options.only:
            rows = study.rows([each for each in methods if each in options.methods])
            found[part], tables[part] = [row.to_json() for row in rows], table(rows)
    if "permutation" in options.only:
        permuted = Permuted() if mnist else PERMUTED_DIGITS
        clusterings = [
            clusters(permuted, experts, start, options.data, runner, range(1, 6))
            for start in STARTS
            for experts in (3, 4, 5)
        ]
        found["permutation"] = [vars(each) for each in clusterings]
        tables["permutation"] = clusters_table(clusterings)
    told = "\n".join(f"\n{part}\n{columns(lines)}" for part, lines in tables.items())
    show(options, found, told, indent=2)


if __name__ == "__main__":
    main()

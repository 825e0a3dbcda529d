"""The first part of the study: accuracy and bytes of all methods, on known and on new devices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.expert_study.device_tests import DeviceTests
from benchmarks.expert_study.methods import EVERY, Choice, Method, Setup, choices, recipe_of
from benchmarks.expert_study.runs import Look, Observed, Runner, mean_of
from benchmarks.expert_study.samples import Files, dealt, halves, read, written
from edgefed.algorithms.base import State
from edgefed.algorithms.registry import make
from edgefed.config.recipe import Recipe
from edgefed.coordinator.run_model import load_dataset, make_model
from edgefed.data.partition import deal
from edgefed.events.expert_tables import experts_json
from edgefed.events.method_tables import TableView
from edgefed.learn.training import Trainer
from edgefed.seeds import derive
from edgefed.simulator.sweep.table import Spread, spread

LAST, BETWEEN = 3, 2
"""Tests that make a score, and the rounds from one to the next."""

EARLY = 10
"""Rounds from one test before the last ones to the next, of known devices only."""

TUNING_SEED = 101
MODES = ("known", "start", "average", "fitted", "fitted long", "marginal")


@dataclass(frozen=True)
class Row:
    """One method.

    Attributes:
        chosen: words of its setting.
        scores: by mode, one for each seed; a mode that the method lacks is missing.
        traffic: bytes that a device is sent and sends in a round, one for each seed.
        early: accuracy on known devices in earlier rounds, one list a seed.
        load: of each expert after the last round, by seed.
        sharpest: the mean over labels of the largest share in the table, by seed.
        seconds: of CPU time, one for each seed.
        tuning: accuracy on known devices in the other samples, by setting.
    """

    method: str
    chosen: str
    scores: Mapping[str, tuple[float, ...]]
    traffic: tuple[float, ...]
    seconds: tuple[float, ...] = ()
    early: tuple[tuple[float, ...], ...] = ()
    load: tuple[tuple[float, ...], ...] = ()
    sharpest: tuple[float, ...] = ()
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
            "early": [list(each) for each in self.early],
            "load": [list(each) for each in self.load],
            "sharpest": list(self.sharpest),
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
        tune = {TUNING_SEED: self._files(arrays["tune"], TUNING_SEED)}
        test = {seed: self._files(arrays["test"], seed) for seed in self.seeds}
        tuned: dict[str, dict[str, float]] = {}
        for name in methods:
            source = EVERY[name].tuned_as or name
            if source not in tuned:
                tuned[source] = self._tuning(source, tune)
        rows = []
        for name in methods:
            found = tuned[EVERY[name].tuned_as or name]
            best = max(found, key=lambda words: found[words])
            rows.append(self._row(name, best, test, {} if EVERY[name].tuned_as else found))
        return rows

    def _files(self, arrays: Mapping[str, Any], seed: int) -> Files:
        setup = self.setup
        sizes = (setup.devices, setup.new)
        known, new = dealt(arrays, sizes, setup.samples, setup.alpha, seed)
        folder = self.runner.folder / "data"
        return Files(written(folder, "known", known), written(folder, "new", new))

    def _tuning(self, name: str, files: Mapping[int, Files]) -> dict[str, float]:
        """Return the accuracy on known devices by setting."""
        found = {}
        for words, choice in choices(EVERY[name]).items():
            (line,) = self._lines(f"{name}, tuned, {words}", EVERY[name], choice, files)
            score = mean_of(line, "known")
            found[words] = -1.0 if score is None or math.isnan(score) else score
        return found

    def _row(
        self, name: str, words: str, files: Mapping[int, Files], tuning: Mapping[str, float]
    ) -> Row:
        choice = choices(EVERY[name])[words]
        lines = self._lines(f"{name}, {words}", EVERY[name], choice, files, new=True)
        scores = {mode: [mean_of(line, mode) for line in lines] for mode in MODES}
        return Row(
            name,
            words,
            {
                mode: tuple(math.nan if each is None else each for each in found)
                for mode, found in scores.items()
                if any(each is not None for each in found)
            },
            tuple(line["traffic"] / self.setup.cohort for line in lines),
            tuple(line["seconds"] for line in lines),
            tuple(tuple(n["early"] for n in line["notes"] if "early" in n) for line in lines),
            tuple(tuple(line["notes"][-1].get("load", ())) for line in lines if line["notes"]),
            tuple(line["notes"][-1].get("sharpest", 1.0) for line in lines if line["notes"]),
            tuning,
        )

    def _lines(
        self,
        case: str,
        method: Method,
        choice: Choice,
        files: Mapping[int, Files],
        new: bool = False,
    ) -> list[dict[str, Any]]:
        """Return what came of the runs with all seeds."""
        found = []
        for seed, pair in files.items():
            recipe = recipe_of(self.setup, method, choice, pair.known, seed)
            look = self._look(recipe, pair if new else None)
            found.append(self.runner.line(case, recipe, look))
        return found

    def _look(self, recipe: Recipe, files: Files | None) -> Look:
        """Return the tests after the last rounds; without files, of known devices only."""
        rounds = self.setup.rounds
        wanted = range(rounds, max(0, rounds - LAST * BETWEEN), -BETWEEN)
        tests: list[DeviceTests] = []

        def look(number: int, state: State, devices: Observed) -> dict[str, Any]:
            early = files is not None and number % EARLY == 0 and number not in wanted
            if number not in wanted and not early:
                return {}
            if not tests:
                tests.append(device_tests(recipe, devices, files))
            if early:
                return {"early": tests[0].known_score(state, devices.private)}
            algorithm = tests[0].algorithm
            last = number == rounds
            found: dict[str, Any] = tests[0].scores(state, devices.private, last=last)
            tables = [TableView(table=table) for table in algorithm.view(state)]
            report = experts_json(tables, {})
            if not report.get("load"):
                return found
            sharpest = [max(row["shares"]) for row in report["table"]]
            return {**found, "load": report["load"], "sharpest": fmean(sharpest)}

        return look


def device_tests(recipe: Recipe, devices: Observed, files: Files | None) -> DeviceTests:
    """Return the tests of a run on the devices that train, and on those of another file."""
    everyone = recipe.rounds.model_copy(update={"cohort": 0})
    algorithm = make(recipe.model_copy(update={"rounds": everyone}))
    dataset = load_dataset(recipe, None)
    model = make_model(recipe, dataset.shape, dataset.classes, 0)
    algorithm.check_model(model)
    new = {}
    if files is not None:
        section = recipe.data.model_copy(update={"path": str(files.new.absolute())})
        other = load_dataset(recipe.model_copy(update={"data": section}), None)
        count = len(set(other.groups.tolist())) if other.groups is not None else 0
        shards = deal(other, section, count, recipe.simulation.holdout or 0.0, recipe.seed)
        new = {f"new-{number:02d}": shard for number, shard in enumerate(shards)}
    seed = derive(recipe.seed, "device tests")
    preset = recipe.personal.preset
    return DeviceTests(algorithm, Trainer(model), devices.shards, new, preset, seed)


def difference(scores: Sequence[float], others: Sequence[float]) -> Spread:
    """Return the difference by seed."""
    return spread([one - other for one, other in zip(scores, others, strict=True)])


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
        traffic = spoken(spread([each / 1000 for each in row.traffic]), "{:.0f}")
        seconds = spoken(spread(row.seconds), "{:.0f}")
        found.append((row.method, row.chosen, modes[0], against, *modes[1:], traffic, seconds))
    return found


def spoken(value: Spread, form: str = "{:.3f}") -> str:
    """Return mean and deviation in words; nothing for no values."""
    if value.mean is None:
        return ""
    if value.deviation is None:
        return form.format(value.mean)
    return f"{form.format(value.mean)} ± {form.format(value.deviation).lstrip('+')}"

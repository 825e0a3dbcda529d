"""Choose a method's setting on samples kept apart, and test what was chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, TypeVar

from benchmarks.studies.runs import Look, Run, Runner, best_of
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.values.layers import ValueLayer, merge
from edgefed.config.values.toml import read_toml

Tables = Mapping[str, Any]
"""Tables of a recipe, or of a study's file."""

Part = Literal["tune", "test"]
Made = TypeVar("Made")


def read_tables(module: str) -> Tables:
    """Return the tables of the ``study.toml`` beside a module, which is named by its file."""
    return read_toml(Path(module).with_name("study.toml")).values


def each(kind: Callable[..., Made], tables: Mapping[str, Tables]) -> dict[str, Made]:
    """Return an object of a class for each table, whose keys are its arguments."""
    return {name: kind(**table) for name, table in tables.items()}


def merged(*tables: Tables) -> Tables:
    """Return tables in one, of which later ones override earlier ones."""
    return merge([ValueLayer(table) for table in reversed(tables)]).values


def recipe_of(file: Path, seed: int, *tables: Tables) -> Recipe:
    """Return the recipe of tables for a file's data and a seed."""
    own = {"seed": seed, "data": {"path": str(file.absolute())}}
    return Recipe.model_validate(merged(*tables, own))


@dataclass(frozen=True)
class Row:
    """A method in a set-up.

    Attributes:
        chosen: words of its setting.
        tuning: score on the samples kept apart, by setting; empty where nothing was chosen here.
        runs: with each seed.
    """

    setup: str
    method: str
    chosen: str
    tuning: Mapping[str, float]
    runs: Sequence[Run]


@dataclass(frozen=True)
class Trials:
    """The runs of a method in a set-up.

    Attributes:
        case: words for both.
        recipe: makes a recipe of a setting's words, a part of the data, and a seed.
        metric, last: a score is the mean of so many last values.
        look: makes what looks at the rounds of a recipe's run.
    """

    runner: Runner
    case: str
    recipe: Callable[[str, Part, int], Recipe]
    metric: str = "accuracy"
    last: int = 1
    look: Callable[[Recipe], Look] | None = None

    def tuned(self, settings: Iterable[str], seeds: Sequence[int]) -> dict[str, float]:
        """Return the mean score of each setting; NaN where a run failed, nothing if one lacks."""
        return {
            setting: fmean(run.score(self.metric, self.last) for run in runs)
            for setting, runs in self._runs("tune", settings, seeds).items()
        }

    def tested(self, setting: str, seeds: Sequence[int]) -> list[Run]:
        """Return the run of a setting with each seed; nothing if one lacks."""
        return self._runs("test", [setting], seeds).get(setting, [])

    def _runs(
        self, part: Part, settings: Iterable[str], seeds: Sequence[int]
    ) -> dict[str, list[Run]]:
        words = {
            setting: {seed: f"{self.case}, {part}: {setting}, {seed}" for seed in seeds}
            for setting in settings
        }
        recipes = {
            case: self.recipe(setting, part, seed)
            for setting, cases in words.items()
            for seed, case in cases.items()
        }
        known = {words: run for words, run in self.runner.runs(recipes, self.look).items() if run}
        if len(known) < len(recipes):
            return {}
        return {
            setting: [known[case] for case in cases.values()] for setting, cases in words.items()
        }


def rows_of(
    setup: str,
    runner: Runner,
    files: Mapping[str, Path],
    methods: Mapping[str, Mapping[str, Tables]],
    seeds: Mapping[Part, Sequence[int]],
    last: int,
) -> list[Row]:
    """Return a row for each method: tuned, unless it has one setting, then tested.

    Args:
        setup: its name.
        runner: of the runs.
        files: of the data of each part.
        methods: the tables of each setting, by the words for it.
        seeds: of each part.
        last: tests that make a score.
    """
    rows = []
    for method, choices in methods.items():

        def recipe(
            words: str, part: Part, seed: int, choices: Mapping[str, Tables] = choices
        ) -> Recipe:
            return recipe_of(files[part], seed, choices[words])

        trials = Trials(runner, f"{setup}, {method}", recipe, last=last)
        tuning = trials.tuned(choices, seeds["tune"]) if len(choices) > 1 else {}
        best = best_of(tuning) if tuning else next(iter(choices))
        rows.append(Row(setup, method, best, tuning, trials.tested(best, seeds["test"])))
    return rows

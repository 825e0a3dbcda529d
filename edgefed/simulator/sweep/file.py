"""A sweep file: one recipe, the settings to vary, and the seeds."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator

from edgefed.config.fleet.settings_files import expand
from edgefed.config.loading.validate import validate
from edgefed.config.loading.write import toml_value
from edgefed.config.recipes.sections import Section
from edgefed.config.values.layers import ValueLayer, document_layer, leaves
from edgefed.config.values.nearest import did_you_mean, nearest_name
from edgefed.config.values.problems import BAD_VALUE, Problem, dotted, problems_error
from edgefed.config.values.toml import Document, read_toml
from edgefed.config.values.toml_positions import KeyPath
from edgefed.simulator.sweep.choice import ChooseSection
from edgefed.simulator.sweep.report import (
    Report,
    ReportItem,
    default_report,
    report_of,
    report_problems,
)

MAX_RUNS = 100_000
"""Cases times seeds that a sweep may have."""

SHOWN_NAMES = 10
"""Most cases that a message lists."""

Seed = Annotated[int, Field(ge=0, lt=2**63)]


class SweepFile(Section):
    """A recipe, the settings that vary over it, and the seeds of each case."""

    recipe: Any = Field(default_factory=dict)
    """The recipe: a file, whose name starts at the sweep's folder, or a table."""

    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (1, 2, 3)
    """Every case is run with each of these seeds."""

    target: Annotated[float, Field(gt=0, le=1)] | None = None
    """An accuracy; the table states after how many rounds it was reached."""

    report: Annotated[tuple[ReportItem, ...], Field(min_length=1)] | None = None
    """The metrics of the tables: names, or tables of ``metric``, ``better`` and ``target``. Unset:
    accuracy, loss, bytes and seconds."""

    baseline: Any = ""
    """The case with which all others are compared, seed by seed: its name, or a table of settings.
    With a table, every case is compared with the one that has these settings and is otherwise
    equal. Unset: the first case."""

    choose: ChooseSection | None = None
    """Choose the best case of each group by samples that are not the test's."""

    grid: dict[str, Any] = Field(default_factory=dict)
    """Recipe keys, each with a list of values; every combination is a case."""

    cases: tuple[dict[str, Any], ...] = ()
    """Tables of recipe keys, each a case of its own, with an optional ``name``."""

    @field_validator("recipe")
    @classmethod
    def _file_or_table(cls, value: Any) -> Any:
        if not isinstance(value, (str, dict)):
            raise ValueError("must be a quoted file name or a table")
        return value

    @field_validator("baseline")
    @classmethod
    def _name_or_table(cls, value: Any) -> Any:
        if not isinstance(value, (str, dict)):
            raise ValueError("must be a case's name in quotes, or a table of settings")
        return value

    @field_validator("seeds")
    @classmethod
    def _once(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if twice := [seed for seed in seeds if seeds.count(seed) > 1]:
            raise ValueError(f"must have each seed once, not {twice[0]} twice")
        return seeds


@dataclass(frozen=True)
class Variant:
    """One case as it was written.

    Attributes:
        name: as the table calls it.
        settings: recipe keys and values.
        layer: the same as a layer over the recipe, which knows the lines.
    """

    name: str
    settings: Mapping[str, Any]
    layer: ValueLayer


@dataclass(frozen=True)
class Written:
    """A sweep file that was read.

    Attributes:
        recipe: the recipe's file, or the layer of its table.
        variants: the cases, at least one.
        report: the metrics of the tables.
        baseline: name of the case with which the others are compared; or settings of the case with
            which each is compared that is otherwise equal.
        choose: how the best cases are chosen; None to choose none.
        layer: the file, which knows the lines.
    """

    recipe: Path | ValueLayer
    seeds: tuple[int, ...]
    variants: tuple[Variant, ...]
    report: Report = field(default_factory=default_report)
    baseline: str | Mapping[str, Any] = ""
    choose: ChooseSection | None = None
    layer: ValueLayer = field(default_factory=ValueLayer)


def read_sweep(path: Path | Document, shown: str = "") -> Written:
    """Read a sweep file; ``shown`` is how messages call it.

    A ``Document`` was read, or made, by the caller; its relative paths start at ``shown``'s folder.

    Raises:
        RecipeError: it cannot be read, or something in it is wrong; every problem has its line.
    """
    document = path if isinstance(path, Document) else read_toml(path, shown)
    layer = document_layer(document)
    made, problems = validate(SweepFile, layer.values, layer)
    if made is None:
        raise problems_error(problems)
    variants, problems = _variants(made, layer)
    problems += _problems(made, variants, layer)
    problems += report_problems(made.report or (), made.target, layer)
    if problems:
        raise problems_error(problems)
    recipe: Path | ValueLayer
    if isinstance(made.recipe, str):
        recipe = Path(shown or str(path)).parent / expand(Path(made.recipe))
    else:
        recipe = document_layer(document, table="recipe")
    return Written(
        recipe,
        made.seeds,
        tuple(variants),
        report_of(made.report or (), made.target),
        _settings(made.baseline) or variants[0].name,
        made.choose,
        layer,
    )


def _variants(made: SweepFile, layer: ValueLayer) -> tuple[list[Variant], list[Problem]]:
    """Return the cases, and the problems of their form."""
    if made.cases:
        return [_listed(number, case, layer) for number, case in enumerate(made.cases)], []
    axes, problems = [], []
    for path, values in leaves(made.grid) if made.grid else ():
        origin = layer.nearest(("grid", *path))
        if isinstance(values, list) and values:
            axes.append([(_flat(path), value, origin) for value in values])
        else:
            text = "must be a list of the values to try"
            problems.append(Problem(origin, f"grid.{dotted(path)}", text))
    if _too_many(axes, len(made.seeds)):
        text = f"more than {MAX_RUNS} runs"
        return [], [*problems, Problem(layer.nearest(("grid",)), "grid", text)]
    return [_variant("", chosen) for chosen in itertools.product(*axes)], problems


def _too_many(axes: Iterable[list[Any]], seeds: int) -> bool:
    count = seeds
    for axis in axes:
        count *= len(axis)
    return count > MAX_RUNS


def _listed(number: int, case: Mapping[str, Any], layer: ValueLayer) -> Variant:
    """Return a case of the list."""
    place: KeyPath = ("cases", number)
    settings = [
        (_flat(path), value, layer.nearest((*place, *path)))
        for path, value in leaves(case)
        if path and path != ("name",)
    ]
    return _variant(str(case.get("name", "")), settings)


def _variant(name: str, settings: Iterable[tuple[tuple[str, ...], Any, Any]]) -> Variant:
    chosen = list(settings)
    values: dict[str, Any] = {}
    origins: dict[KeyPath, Any] = {}
    for path, value, origin in chosen:
        table = values
        for key in path[:-1]:
            table = table.setdefault(key, {})
            if not isinstance(table, dict):  # a key within a value: the check of the recipe tells
                break
        else:
            table[path[-1]] = value
        origins[path] = origin
    plain = {".".join(path): value for path, value, _ in chosen}
    return Variant(name or case_name(plain), plain, ValueLayer(values, origins))


def _flat(path: KeyPath) -> tuple[str, ...]:
    """Return the key that nested tables, or a quoted key with dots, mean."""
    return tuple(part for key in path for part in str(key).split("."))


def case_name(settings: Mapping[str, Any]) -> str:
    """Return a name made of a case's settings: last words of keys where they tell enough.

    ``algorithm.name`` is called ``algorithm``.
    """
    short = short_keys(settings)
    parts = (f"{short[key]}={setting_text(value)}" for key, value in settings.items())
    return " ".join(parts) or "recipe"


def short_keys(keys: Iterable[str], taken: Collection[str] = ()) -> dict[str, str]:
    """Return the last word of each key, or all of a key whose last word another has.

    Args:
        keys: ``algorithm.name`` is called ``algorithm``.
        taken: other names, which no key gets as its last word.
    """
    words = {key: key.removesuffix(".name").rpartition(".")[2] for key in keys}
    names = [*words.values(), *taken]
    return {key: word if names.count(word) == 1 else key for key, word in words.items()}


def setting_text(value: Any) -> str:
    """Return a value of a recipe as it is in TOML, words without quotes."""
    return value if isinstance(value, str) else toml_value(value)


def _listing(names: Sequence[str]) -> str:
    """Return the end of a message about an unknown name that lists the first known ones."""
    shown = ", ".join(f'"{name}"' for name in names[:SHOWN_NAMES])
    return f"; the cases are {shown}{', …' if len(names) > SHOWN_NAMES else ''}"


def _settings(baseline: Any) -> str | dict[str, Any]:
    """Return a case's name, or settings by their flat keys."""
    if isinstance(baseline, str):
        return baseline
    return {".".join(_flat(path)): value for path, value in leaves(baseline)}


def _baseline_problem(baseline: str | Mapping[str, Any], variants: Sequence[Variant]) -> str:
    """Return why no case is the baseline; nothing if one is."""
    names = [variant.name for variant in variants]
    if isinstance(baseline, str):
        near = did_you_mean(nearest_name(baseline, names))
        known = not baseline or baseline in names
        return "" if known else f"there is no case '{baseline}'{near or _listing(names)}"
    if any(baseline.items() <= variant.settings.items() for variant in variants):
        return ""
    return f"no case has {case_name(baseline)}; its keys are those of the grid or of the cases"


def _problems(made: SweepFile, variants: Sequence[Variant], layer: ValueLayer) -> Iterator[Problem]:
    """Yield the problems of the cases as a whole."""
    if made.cases and made.grid:
        yield Problem(layer.nearest(("grid",)), "grid", "a sweep has a grid or cases, not both")
    if text := _baseline_problem(_settings(made.baseline), variants):
        yield Problem(layer.nearest(("baseline",)), "baseline", text, BAD_VALUE)
    seen: set[str] = set()
    for number, variant in enumerate(variants):
        place: KeyPath = ("cases", number) if made.cases else ("grid",)
        if variant.name in seen:
            text = f"there is a case '{variant.name}' already; give each a name of its own"
            yield Problem(layer.nearest(place), dotted(place), text, BAD_VALUE)
        seen.add(variant.name)
        if "seed" in variant.settings:
            text = "seeds are not varied here; name them in seeds = […]"
            yield Problem(layer.nearest((*place, "seed")), f"{dotted(place)}.seed", text)

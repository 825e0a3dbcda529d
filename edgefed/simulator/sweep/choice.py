"""Choose the best setting of each group of cases by a validation score, never by the test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pydantic import field_validator

from edgefed.config.recipes.recipe import Recipe
from edgefed.config.recipes.sections import Section
from edgefed.config.values.nearest import did_you_mean, nearest_name
from edgefed.simulator.sweep.report import Report, usual_better
from edgefed.simulator.sweep.statistics import Better, Spread, spread


class ChooseSection(Section):
    """The table ``choose`` of a sweep file."""

    by: str = "validation_accuracy"
    """A score of samples that are not the test's: ``validation_…`` with
    ``evaluation.validation_share``, or ``device_…`` where devices and coordinator test."""

    better: Literal["higher", "lower"] | None = None
    """Which values are better. Unset: by the words of the name."""

    within: tuple[str, ...] = ()
    """Recipe keys: of the cases that have the same values of these, one is chosen. Unset: one of
    all cases."""

    @field_validator("by")
    @classmethod
    def _apart(cls, by: str) -> str:
        if not by.startswith(("validation_", "device_")):
            raise ValueError("must be a score of other samples: validation_… or device_…")
        return by


@dataclass(frozen=True)
class Choice:
    """The chosen case of a group.

    Attributes:
        within: the keys and values that make the group.
        case: its name; empty if no seed finished in all cases of the group that have a score.
        score: of the chosen case, over the seeds that finished in all of these.
        seeds: these seeds.
    """

    within: Mapping[str, Any]
    by: str
    case: str
    score: Spread
    seeds: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the choice as ``--json`` and ``table.json`` have it."""
        return asdict(self)


def better_of(section: ChooseSection) -> Better | None:
    """Return the better values of the score by which is chosen; None where nothing says it."""
    return section.better or usual_better(section.by)


def choose(
    section: ChooseSection, recipes: Mapping[str, Recipe], scores: Mapping[str, Mapping[int, float]]
) -> list[Choice]:
    """Return the choice of each group of cases; of equal means the first case.

    Args:
        section: how to choose.
        recipes: by case.
        scores: by case and seed.
    """
    groups: dict[str, tuple[dict[str, Any], list[str]]] = {}
    for case, recipe in recipes.items():
        within = {key: setting(recipe, key) for key in section.within}
        groups.setdefault(repr(within), (within, []))[1].append(case)
    return [_choice(section, within, cases, scores) for within, cases in groups.values()]


def _choice(
    section: ChooseSection,
    within: Mapping[str, Any],
    cases: Sequence[str],
    scores: Mapping[str, Mapping[int, float]],
) -> Choice:
    cases = [case for case in cases if scores[case]]
    # Only seeds that all cases have: means over different seeds do not compare
    common = sorted(set.intersection(*(set(scores[case]) for case in cases))) if cases else []
    if not common:
        return Choice(within, section.by, "", spread([]), ())
    means = {case: spread([scores[case][seed] for seed in common]) for case in cases}
    sign = -1 if better_of(section) == "lower" else 1
    best = max(cases, key=lambda case: sign * (means[case].mean or 0.0))
    return Choice(within, section.by, best, means[best], tuple(common))


def setting(recipe: Recipe, key: str) -> Any:
    """Return the value of a dotted key of a recipe; None if it has none."""
    value: Any = recipe.model_dump(mode="json")
    for word in key.split("."):
        value = value.get(word) if isinstance(value, dict) else None
    return value


def choice_problem(
    section: ChooseSection, report: Report, recipes: Sequence[Recipe], places: Sequence[str]
) -> str:
    """Return why a choice cannot be made apart from the test; nothing if it can.

    Args:
        section: how to choose.
        report: of the sweep.
        recipes: of its cases.
        places: where each of them is tested.
    """
    if better_of(section) is None:
        return f'{section.by} needs better = "higher" or "lower"'
    for key in section.within:
        if all(setting(recipe, key) is None for recipe in recipes):
            known = {
                f"{table}.{name}"
                for table, values in recipes[0].model_dump(mode="json").items()
                if isinstance(values, dict)
                for name in values
            }
            return f"no recipe has '{key}'{did_you_mean(nearest_name(key, known))}"
    if section.by.startswith("validation_"):
        if not all(recipe.evaluation.validation_share for recipe in recipes):
            return f"{section.by} needs evaluation.validation_share in every recipe, such as 0.1"
        return ""
    if any(place != "both" for place in places):
        return f'{section.by} needs evaluation.on = "both" in every recipe: else it is the test'
    shown = [metric.name for metric in report if metric.name.startswith("device_")]
    return f"{shown[0]} is a test score of report, so it cannot choose" if shown else ""

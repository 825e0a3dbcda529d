"""Load and validate the recipe that a command line names, and describe a run's result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefed.cli.common.context import Globals

if TYPE_CHECKING:
    from edgefed.config.recipes.recipe import Recipe


@dataclass(frozen=True)
class Typed:
    """The values of the shared recipe options; None for those that were not typed."""

    path: Path | None = None
    sets: Iterable[str] | None = None
    algorithm: str | None = None
    rounds: int | None = None
    seed: int | None = None
    devices: int | None = None


def checked_recipe(options: Globals, typed: Typed) -> Recipe:
    """Return the recipe, with the keys of its algorithm, data set and model checked too.

    Raises:
        RecipeError: something in it is wrong; it lists every problem.
        UnknownNameError: there is no such algorithm, and nothing else is wrong.
    """
    from edgefed.api.recipe_sections import open_problems
    from edgefed.api.recipe_source import checked
    from edgefed.config.loading.load import Flag, load_recipe, parse_sets

    flags: list[Flag] = [
        Flag("--algorithm", "algorithm.name", typed.algorithm),
        Flag("--rounds", "rounds.count", typed.rounds),
        Flag("--seed", "seed", typed.seed),
        Flag("--devices", "simulation.devices", typed.devices),
    ]
    loaded = load_recipe(
        typed.path,
        options.surroundings(),
        sets=parse_sets(typed.sets or ()),
        flags=flags,
        further=open_problems,
    )
    return checked(loaded)


def describe_result(result: dict[str, Any]) -> str:
    """Return the result in words."""
    from edgefed.terminal.units import counted, duration, score, size, tested_by

    tested = score(result["accuracy"], result["loss"]) or "accuracy not tested"
    rows = [
        (
            "run",
            f"{result['run']}  {result['algorithm']}, {counted(result['rounds'], 'round')}, "
            f"{counted(result['devices'], 'device')}, seed {result['seed']}",
        ),
        tuple(tested.split(" ", 1)),
        *([("tested by", counts)] if (counts := tested_by(result)) else []),
        (
            "bytes",
            f"{size(result['bytes_up'])} up, {size(result['bytes_down'])} down, "
            "all devices together",
        ),
        ("time", duration(result["seconds"])),
        ("model", result["model"]),
        ("digest", result["weights_digest"]),
    ]
    return "\n".join(f"{name:<9} {value}" for name, value in rows)

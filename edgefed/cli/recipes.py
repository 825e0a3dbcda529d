"""Load and validate the recipe that a command line names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefed.cli.context import Globals

if TYPE_CHECKING:
    from edgefed.config.load import Loaded
    from edgefed.config.recipe import Recipe


@dataclass(frozen=True)
class Typed:
    """What the shared recipe options gave; None for what was not typed."""

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
    from edgefed.cli.recipe_sections import open_problems
    from edgefed.config.load import Flag, load_recipe, parse_sets

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


def checked(loaded: Loaded[Recipe]) -> Recipe:
    """Return a recipe whose open tables are checked too, as it shall run.

    Raises:
        RecipeError: something in it is wrong; it lists every problem.
        UnknownNameError: there is no such algorithm, and nothing else is wrong.
    """
    from edgefed.algorithms.registry import make
    from edgefed.cli.recipe_sections import open_problems
    from edgefed.config.problems import problems_error

    problems = open_problems(loaded.layer)
    if len(problems) > 1 or any(problem.key.split(".")[0] != "algorithm" for problem in problems):
        raise problems_error(problems)
    make(loaded.value, loaded.layer)
    return _anchored(loaded)


def _anchored(loaded: Loaded[Recipe]) -> Recipe:
    """Return the recipe with the path of its data made absolute from where it was written."""
    recipe = loaded.value
    path = recipe.data.settings().get("path")
    if not isinstance(path, str) or not path or Path(path).expanduser().is_absolute():
        return recipe
    origin = loaded.origin("data.path")
    base = Path(origin.name).expanduser().parent if origin.kind == "file" else Path()
    data = recipe.data.model_copy(update={"path": str((base / path).absolute())})
    return recipe.model_copy(update={"data": data})


def result_of(record: dict[str, Any], model: str) -> dict[str, Any]:
    """Return what ``demo`` and ``sim run`` print with ``--json`` about a run that has ended."""
    return {
        "run": record["run"],
        "name": record["name"],
        "status": record["status"],
        "algorithm": record["algorithm"],
        "seed": record["seed"],
        "rounds": record["round"],
        "devices": record["devices"],
        "accuracy": record["accuracy"],
        "loss": record["loss"],
        "weights_digest": record["weights_digest"],
        "bytes_up": record["bytes_up"],
        "bytes_down": record["bytes_down"],
        "seconds": round(record["seconds"], 3),
        "model": model,
    }


def describe_result(result: dict[str, Any]) -> str:
    """Return the same for people."""
    from edgefed.units import counted, score, short_time, size

    tested = score(result["accuracy"], result["loss"]) or "accuracy not tested"
    rows = [
        (
            "run",
            f"{result['run']}  {result['algorithm']}, {counted(result['rounds'], 'round')}, "
            f"{counted(result['devices'], 'device')}, seed {result['seed']}",
        ),
        tuple(tested.split(" ", 1)),
        (
            "bytes",
            f"{size(result['bytes_up'])} up, {size(result['bytes_down'])} down, "
            "all devices together",
        ),
        ("time", short_time(result["seconds"])),
        ("model", result["model"]),
        ("digest", result["weights_digest"]),
    ]
    return "\n".join(f"{name:<9} {value}" for name, value in rows)


def failure_of(record: dict[str, Any]) -> Exception | None:
    """Return the error that a run ended in, or None when it finished."""
    from edgefed.errors import EdgeFedError, TimeLimitError

    if record["status"] == "finished":
        return None
    code = record.get("error") or f"run.{record['status']}"
    kind = TimeLimitError if code in ("round.quorum", "run.devices") else EdgeFedError
    reason = record.get("reason") or "no reason given"
    hint = record.get("hint") or f"edgefed run show {record['run']}"
    told = reason if reason.endswith(".") else f"Run {record['run']} {record['status']}: {reason}."
    return kind(told, code=code, hint=hint)

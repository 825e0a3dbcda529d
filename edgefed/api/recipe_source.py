"""Make a checked recipe from a caller's recipe, table, or path of a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from edgefed.algorithms.composed.registry import make
from edgefed.api.recipe_sections import open_problems
from edgefed.config.fleet.settings_files import Surroundings
from edgefed.config.loading.load import Loaded, load_recipe
from edgefed.config.loading.validate import validate
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.values.layers import ValueLayer
from edgefed.config.values.problems import Problem, ProblemsError, problems_error
from edgefed.coordinator.rounds.training_check import check_combination
from edgefed.errors import EdgeFedError, RecipeError, UsageError

HUBS = ("huggingface",)
"""Data sets whose ``path`` may also be a name on a hub."""

RecipeSource = Recipe | Mapping[str, Any] | str | os.PathLike[str]
"""A recipe, its tables as a mapping, or the path of its TOML file."""


def recipe_of(source: RecipeSource | None, over: Mapping[str, Any]) -> Recipe:
    """Return a recipe, with the keys of its algorithm, data set and model checked too.

    Settings files and environment variables have no effect on it.

    Args:
        source: the recipe; None for the defaults.
        over: tables whose values replace those of the recipe.

    Raises:
        RecipeError: something in it is wrong; it lists every problem.
        UnknownNameError: there is no such algorithm, and nothing else is wrong.
        UsageError: it is not a recipe.
    """
    given = _layer(source)
    around = Surroundings({}, Surroundings.of_process().cwd, no_config=True)
    laid = ValueLayer(plain(over)) if over else None
    return checked(load_recipe(given, around, over=laid, further=open_problems))


def checked(loaded: Loaded[Recipe]) -> Recipe:
    """Return the recipe to run, after checking the tables that models, data and algorithms extend.

    Raises:
        RecipeError: something in it is wrong; it lists every problem.
        UnknownNameError: there is no such algorithm, and nothing else is wrong.
    """
    problems = open_problems(loaded.layer)
    if len(problems) > 1 or any(problem.key.split(".")[0] != "algorithm" for problem in problems):
        raise problems_error(problems)
    make(loaded.value, loaded.layer)
    return _anchored(loaded)


def combination_problems(layer: ValueLayer) -> list[Problem]:
    """Return the reasons to refuse a run of a recipe, as far as the recipe alone shows them.

    Args:
        layer: a recipe without other problems, as it was written.
    """
    recipe, _ = validate(Recipe, layer.values, layer)
    if recipe is None:
        return []
    try:
        check_combination(recipe, make(recipe, layer))
    except ProblemsError as error:
        return list(error.problems)
    except EdgeFedError as error:
        if error.code == "code.refused":  # a simulation checks it
            return []
        return [Problem(layer.nearest(()), "", error.message, error.code, hint=error.hint)]
    return []


def _anchored(loaded: Loaded[Recipe]) -> Recipe:
    """Return the recipe with relative paths made absolute, from the file that names them.

    A value that may be no path stays if there is no such file: a data set of a hub, ``default``
    weights, a run, or a file of the coordinator's.
    """
    recipe = loaded.value
    for key in ("path", "histograms"):
        path = recipe.data.settings().get(key)
        if isinstance(path, str):
            only_files = key == "path" and recipe.data.name in HUBS
            place = _place(loaded, f"data.{key}", path, only_files=only_files)
            recipe = _with(recipe, "data", key, place)
    for key in ("weights", "start"):
        place = _place(loaded, f"model.{key}", getattr(recipe.model, key), only_files=True)
        recipe = _with(recipe, "model", key, place)
    return recipe


def _with(recipe: Recipe, table: str, key: str, value: str | None) -> Recipe:
    """Return a recipe with another value of a table's key; None for the same."""
    if value is None:
        return recipe
    changed = getattr(recipe, table).model_copy(update={key: value})
    return recipe.model_copy(update={table: changed})


def _place(loaded: Loaded[Recipe], key: str, path: str, *, only_files: bool) -> str | None:
    """Return a key's relative path made absolute; with ``only_files``, if it exists."""
    if not path or Path(path).expanduser().is_absolute():
        return None
    origin = loaded.origin(key)
    base = Path(origin.name).expanduser().parent if origin.kind == "file" else Path()
    place = (base / path).absolute()
    return None if only_files and not place.exists() else str(place)


def _layer(source: RecipeSource | None) -> ValueLayer | Path | None:
    if source is None:
        return None
    if isinstance(source, Recipe):
        return ValueLayer(source.model_dump(mode="json"))
    if isinstance(source, Mapping):
        return ValueLayer(plain(source))
    if isinstance(source, (str, os.PathLike)):
        return Path(source)
    raise UsageError(
        f"A recipe cannot be a {type(source).__name__}.",
        hint="give a Recipe, a mapping with its tables, or the path of its TOML file",
    )


def plain(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return tables with the kinds of values that TOML has."""
    try:
        plain: dict[str, Any] = to_jsonable_python(dict(tables), fallback=_refused)
    except PydanticSerializationError as error:
        raise _no_value(str(error)) from error
    return plain


def _refused(value: object) -> Any:
    """Refuse a value of a type that TOML does not have."""
    if not callable(value):
        raise _no_value(f"it is of type {type(value).__name__}")
    name = getattr(value, "__name__", type(value).__name__)
    hint = f"such as '{getattr(value, '__module__', '__main__')}:{name}'"
    if not name.isidentifier():
        hint = "such as '__main__:Mine', of a class or function with a name of its own"
    raise RecipeError(
        f"A recipe or a grid takes the names of classes and functions, not {name} itself.",
        hint=f"write its name, {hint}",
    )


def _no_value(why: str) -> RecipeError:
    return RecipeError(
        f"The recipe has a value that is no text, number, array or table: {why}.",
        hint="convert it first, such as with int(…) or float(…)",
    )

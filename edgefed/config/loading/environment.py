"""``EDGEFED_*`` variables as layers of settings and of the recipe; unknown names are errors.

``EDGEFED_BROKER`` sets ``broker``. A key of a table has two underscores between table and key:
``EDGEFED_ALERTS__BELL=false``, and in a recipe ``EDGEFED_TRAINING__EPOCHS=3``; the recipe's own
keys are ``EDGEFED_RECIPE__NAME`` and ``EDGEFED_RECIPE__SEED``. An empty variable counts as not set.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel

from edgefed.config.fleet.alert_settings import ALERT_PARTS
from edgefed.config.fleet.settings import AgentSettings, Settings
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.values.layers import Origin, ValueLayer, single
from edgefed.config.values.models import has_extras, tables
from edgefed.config.values.nearest import did_you_mean, nearest_name
from edgefed.config.values.problems import UNKNOWN_KEY, Problem, text_problem
from edgefed.config.values.toml import parse_value
from edgefed.config.values.toml_limits import MAX_DEPTH
from edgefed.native.library import VARIABLE

PREFIX = "EDGEFED_"

OTHER_NAMES = {
    "EDGEFED_CONFIG": "the settings file to read instead of all others, as --config",
    "EDGEFED_NO_CONFIG": "1 to read no settings file, as --no-config",
    "EDGEFED_UPDATER": "set by the updater for the agent that it starts: its folder",
    VARIABLE: "0 to do without the compiled kernels",
    **{f"{PREFIX}ALERT_{name}": "what the command of an alert is told" for name in ALERT_PARTS},
}
"""Variables that are not a key of a settings file or a recipe, with their purposes."""


def settings_layers(
    environment: Mapping[str, str], model: type[BaseModel]
) -> tuple[list[ValueLayer], list[Problem]]:
    """Return a layer for each variable that sets a key of ``model``."""
    names = {_variable(path): path for path in _setting_paths(model)}
    return _layers(
        {name: path for name, path in names.items() if environment.get(name)}, environment
    )


def recipe_layers(environment: Mapping[str, str]) -> tuple[list[ValueLayer], list[Problem]]:
    """Return a layer for each variable that sets a key of the recipe."""
    paths = {name: _recipe_path(name) for name in sorted(environment) if environment[name]}
    return _layers({name: path for name, path in paths.items() if path}, environment)


def unknown_variables(environment: Mapping[str, str]) -> list[Problem]:
    """Return a problem for each variable of ours that nothing knows."""
    known = _known_names()
    problems = []
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in known and not _recipe_path(name):
            near = _in_a_table(name, known) or nearest_name(name, known)
            text = f"unknown variable{did_you_mean(near)}"
            problems.append(Problem(Origin("environment", name), name, text, UNKNOWN_KEY, near))
    return problems


def _layers(
    paths: Mapping[str, tuple[str, ...]], environment: Mapping[str, str]
) -> tuple[list[ValueLayer], list[Problem]]:
    """Return the layers of variables that set these keys, and the problems of their texts."""
    layers, problems = [], []
    for name, path in paths.items():
        text, origin = environment[name], Origin("environment", name)
        layers.append(single(path, parse_value(text), origin, text))
        problems += text_problem(text, origin, path)
    return layers, problems


def _recipe_path(name: str) -> tuple[str, ...]:
    """Return the key of the recipe that a variable sets; empty if it sets none."""
    parts = tuple(name[len(PREFIX) :].lower().split("__"))
    if not name.startswith(PREFIX) or not 2 <= len(parts) <= MAX_DEPTH or not all(parts):
        return ()
    sections = tables(Recipe)
    table, key = parts[0], parts[1]
    if table == "recipe":
        own = len(parts) == 2 and key in Recipe.model_fields and key not in sections
        return (key,) if own else ()
    section = sections.get(table)
    if section is None:
        return ()
    return parts if has_extras(section) or parts[1:] in [(k,) for k in section.model_fields] else ()


def _in_a_table(name: str, known: list[str]) -> str:
    """Return the known name that is this one but for the table that it leaves out."""
    ending = f"__{name[len(PREFIX) :]}"
    return next((one for one in known if one.endswith(ending)), "")


def _known_names() -> list[str]:
    """Return every name that can be listed; open tables have more."""
    sections = tables(Recipe)
    own = [key for key in Recipe.model_fields if key not in sections]
    keys = [f"recipe__{key}" for key in own]
    keys += [
        f"{table}__{key}" for table, section in sections.items() for key in section.model_fields
    ]
    settings = [*_setting_paths(Settings), *_setting_paths(AgentSettings)]
    names = [*map(_variable, settings), *(PREFIX + key.upper() for key in keys)]
    return [*names, *OTHER_NAMES]


def _setting_paths(model: type[BaseModel]) -> list[tuple[str, ...]]:
    """Return the path of every key of settings; those of its tables have two parts."""
    inner = tables(model)
    own = [(key,) for key in model.model_fields if key not in inner]
    return [*own, *((table, key) for table in inner for key in inner[table].model_fields)]


def _variable(path: tuple[str, ...]) -> str:
    return PREFIX + "__".join(path).upper()

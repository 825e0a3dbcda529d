"""Load settings and recipes from flags, environment variables, files and defaults.

In order of precedence: flags, ``EDGEFED_*`` variables, the project's file (``./edgefed.toml``), the
user's file, the system's file, defaults. A recipe file has lower precedence than the variables, and
higher precedence than the ``[recipe]`` tables of the settings files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from edgefed.config.fleet.settings import (
    AgentSettings,
    FleetSettings,
    Settings,
    default_state_folder,
)
from edgefed.config.fleet.settings_files import (
    Program,
    Surroundings,
    expand,
    read_places,
    user_file,
)
from edgefed.config.loading import environment as variables
from edgefed.config.loading.validate import validate
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.values.layers import (
    Origin,
    ValueLayer,
    document_layer,
    leaves,
    merge,
    single,
    without,
)
from edgefed.config.values.models import tables
from edgefed.config.values.nearest import nearest_name
from edgefed.config.values.problems import Problem, dotted, problems_error, text_problem
from edgefed.config.values.toml import parse_value, read_toml
from edgefed.config.values.toml_limits import MAX_DEPTH
from edgefed.errors import UsageError

ModelT = TypeVar("ModelT", bound=BaseModel)
SettingsT = TypeVar("SettingsT", bound=FleetSettings)

OWN_KEYS = ("insecure", "user_models")
"""Keys that a project's file must not have."""

RECIPE_TABLE = "recipe"
"""The table of ``edgefed.toml`` with values for every recipe."""


@dataclass(frozen=True)
class Flag:
    """A flag that was typed, and the key that it sets; None for one that was not typed."""

    name: str
    key: str
    value: Any


@dataclass(frozen=True)
class Effective:
    """One value that counts, and where it was written."""

    key: str
    value: Any
    origin: Origin


@dataclass(frozen=True)
class Loaded(Generic[ModelT]):
    """A checked value and where each part of it was written.

    Attributes:
        value: settings or a recipe.
        layer: the values as written, with their places; ``check_section`` takes it.
    """

    value: ModelT
    layer: ValueLayer

    def effective(self) -> list[Effective]:
        """Return every key with its value and origin, in the order of the model."""
        values = self.value.model_dump()
        return [
            Effective(dotted(path), value, self.layer.origin(path))
            for path, value in leaves(values)
        ]

    def origin(self, key: str) -> Origin:
        """Return where a dotted key was written."""
        return self.layer.origin(tuple(key.split(".")))


def load_settings(around: Surroundings, flags: Iterable[Flag] = ()) -> Loaded[Settings]:
    """Return the settings of ``edgefed``.

    Raises:
        RecipeError: a file cannot be read, or values are wrong; it lists every problem.
    """
    return _load_settings(Settings, "edgefed", around, flags)


def load_agent_settings(around: Surroundings, flags: Iterable[Flag] = ()) -> Loaded[AgentSettings]:
    """Return the settings of ``edgefed-agent``.

    Raises:
        RecipeError: a file cannot be read, or values are wrong; it lists every problem.
    """
    return _load_settings(AgentSettings, "edgefed-agent", around, flags)


def load_recipe(
    path: Path | ValueLayer | None,
    around: Surroundings,
    *,
    sets: Mapping[str, str] | None = None,
    flags: Iterable[Flag] = (),
    over: ValueLayer | None = None,
    further: Callable[[ValueLayer], list[Problem]] = lambda layer: [],
) -> Loaded[Recipe]:
    """Return a recipe.

    Args:
        path: its file, or a layer in place of one; None for the defaults and the values over them.
        around: environment, current folder, settings files.
        sets: the values of ``--set KEY=VALUE``: dotted keys to texts, read as TOML values.
        flags: values of flags of their own, such as ``--rounds``.
        over: values over all others, such as a case of a sweep.
        further: finds further problems, such as those of the keys of open tables.

    Raises:
        RecipeError: a file cannot be read, or values are wrong; it lists every problem.
    """
    set_layers, problems = _set_layers(sets or {})
    env_layers, env_problems = variables.recipe_layers(around.environment)
    problems += [*env_problems, *variables.unknown_variables(around.environment)]
    layers = [*set_layers, *_flag_layers(flags), *env_layers]
    if over is not None:
        layers.insert(0, over)
    if isinstance(path, ValueLayer):
        layers.append(path)
    elif path is not None:
        layers.append(document_layer(read_toml(around.cwd / expand(path), str(path))))
    for _, document in read_places("edgefed", around):
        if isinstance(document.values.get(RECIPE_TABLE, {}), dict):
            layers.append(document_layer(document, table=RECIPE_TABLE))
        else:
            origin = document_layer(document).origin((RECIPE_TABLE,))
            problems.append(Problem(origin, RECIPE_TABLE, "must be a table"))
    return _finish(Recipe, _named(merge(layers)), problems, further)


def project_problems(layer: ValueLayer, program: Program, around: Surroundings) -> list[Problem]:
    """Return a problem for each key of a project's file that only a user's own file may have.

    A project's file comes with the folder, such as a cloned repository. It must not start a
    program, allow the import of code, or disable TLS.
    """
    values, alerts = layer.values, layer.values.get("alerts")
    keys: list[tuple[str, ...]] = [(key,) for key in OWN_KEYS if key in values]
    if isinstance(alerts, Mapping) and "command" in alerts:
        keys.append(("alerts", "command"))
    own = user_file(program, around.environment)
    text = f"is not taken from a project's file; set it in your own, {own}"
    return [Problem(layer.nearest(key), dotted(key), text, code="config.project") for key in keys]


def parse_sets(items: Iterable[str]) -> dict[str, str]:
    """Return ``KEY=VALUE`` words as a mapping; the last of a key counts.

    Raises:
        UsageError: a word has no ``=``, no key before it, or a key of too many parts.
    """
    sets = {}
    for item in items:
        key, equals, text = item.partition("=")
        key = key.strip()
        if key.count(".") >= MAX_DEPTH:
            raise UsageError(
                f"--set: a key has more than {MAX_DEPTH} parts.",
                hint="write it as KEY=VALUE, such as --set training.epochs=3",
            )
        if not equals or not all(key.split(".")):
            raise UsageError(
                f"--set {item}: write it as KEY=VALUE.", hint="such as --set training.epochs=3"
            )
        sets[key] = text
    return sets


def _named(layer: ValueLayer) -> ValueLayer:
    """Return a recipe that nobody named under the name of its data set and its algorithm."""
    if "name" in layer.values:
        return layer
    parts = []
    for table, default in (("data", Recipe().data.name), ("algorithm", Recipe().algorithm.name)):
        section = layer.values.get(table)
        parts.append(section.get("name", default) if isinstance(section, dict) else default)
    name = re.sub(r"[^a-z0-9]+", "-", "-".join(map(str, parts)).lower()).strip("-")[:64]
    return ValueLayer({**layer.values, "name": name}, layer.origins, layer.texts) if name else layer


def _load_settings(
    model: type[SettingsT], program: Program, around: Surroundings, flags: Iterable[Flag]
) -> Loaded[SettingsT]:
    """Lay together the settings of one program."""
    env_layers, problems = variables.settings_layers(around.environment, model)
    layers = [*_flag_layers(flags), *env_layers]
    layers = [_anchored(layer, around.cwd) for layer in layers]
    for place, document in read_places(program, around):
        layer = document_layer(document)
        if place.level == "project":
            problems += project_problems(layer, program, around)
        layer = without(layer, RECIPE_TABLE) if program == "edgefed" else layer
        layers.append(_anchored(layer, place.path.parent))
    merged = merge(layers)
    if "state" not in merged.values:
        state = str(default_state_folder(around.environment))
        merged = ValueLayer({**merged.values, "state": state}, merged.origins, merged.texts)
    problems += variables.unknown_variables(around.environment)
    return _finish(model, merged, problems)


def _finish(
    model: type[ModelT],
    layer: ValueLayer,
    problems: list[Problem],
    further: Callable[[ValueLayer], list[Problem]] = lambda layer: [],
) -> Loaded[ModelT]:
    """Check the merged layers."""
    value, mistakes = validate(model, layer.values, layer)
    if value is None or problems:
        raise problems_error([*problems, *mistakes, *further(layer)])
    return Loaded(value, layer)


def _anchored(layer: ValueLayer, folder: Path) -> ValueLayer:
    """Return the layer with its state folder made absolute from where it was written."""
    state = layer.values.get("state")
    if not isinstance(state, (str, Path)):
        state = layer.texts.get(("state",))
    if state is None:
        return layer
    absolute = str(folder / expand(Path(state)))
    return ValueLayer({**layer.values, "state": absolute}, layer.origins)


def _flag_layers(flags: Iterable[Flag]) -> list[ValueLayer]:
    """Return a layer for each flag that was typed."""
    return [
        single(tuple(flag.key.split(".")), flag.value, Origin("flag", flag.name))
        for flag in flags
        if flag.value is not None
    ]


def _set_layers(sets: Mapping[str, str]) -> tuple[list[ValueLayer], list[Problem]]:
    """Return a layer for each ``--set``, and the problems of their texts."""
    layers, problems = [], []
    for key, text in sets.items():
        origin, path = Origin("flag", f"--set {key}"), _set_path(key)
        layers.append(single(path, parse_value(text), origin, text))
        problems += text_problem(text, origin, path)
    # The later of two that touch counts.
    return layers[::-1], problems


def _set_path(key: str) -> tuple[str, ...]:
    """Return the path that ``--set`` means; a lone key that no table knows is the algorithm's."""
    path = tuple(key.split("."))
    sections = tables(Recipe)
    elsewhere = any(key in section.model_fields for section in sections.values())
    if len(path) > 1 or elsewhere or nearest_name(key, Recipe.model_fields):
        return path
    return ("algorithm", key)

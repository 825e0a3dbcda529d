"""Check values against a pydantic model, and report each problem with its place."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from edgefed.config.fleet.alert_settings import WEBHOOK_PATTERN
from edgefed.config.fleet.settings import BROKER_PATTERN
from edgefed.config.recipes.recipe import NAME_PATTERN
from edgefed.config.recipes.sections import FUNCTION_PATTERN, LOSS_PATTERN
from edgefed.config.values.address import without_password
from edgefed.config.values.layers import ValueLayer
from edgefed.config.values.models import model_at, tables
from edgefed.config.values.nearest import did_you_mean, nearest_name
from edgefed.config.values.problems import (
    BAD_VALUE,
    MISSING_KEY,
    UNKNOWN_KEY,
    Problem,
    dotted,
    problems_error,
)
from edgefed.config.values.toml_positions import KeyPath
from edgefed.wire.limits import CLASS_NAME_PATTERN

ModelT = TypeVar("ModelT", bound=BaseModel)

_NAME_WORDS = "be 1 to 64 lower-case letters, digits and hyphens, and not begin with a hyphen"
_PATTERN_WORDS = {
    NAME_PATTERN: _NAME_WORDS,
    LOSS_PATTERN: "be 'cross_entropy', 'squared_error' or 'package.module:function'",
    FUNCTION_PATTERN: "be 'package.module:function'",
    CLASS_NAME_PATTERN: "have no control characters",
    WEBHOOK_PATTERN: "be an address without a login, https://HOST/PATH or http://HOST/PATH",
    BROKER_PATTERN: "be a broker address, mqtts://HOST:PORT or mqtt://HOST:PORT",
}
_MUST: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "greater_than_equal": lambda context: f"be at least {_number(context['ge'])}",
    "greater_than": lambda context: f"be more than {_number(context['gt'])}",
    "less_than_equal": lambda context: f"be at most {_number(context['le'])}",
    "less_than": lambda context: f"be less than {_number(context['lt'])}",
    "finite_number": lambda _: "be finite",
    "int_type": lambda _: "be a whole number",
    "int_from_float": lambda _: "be a whole number",
    "float_type": lambda _: "be a number",
    "bool_type": lambda _: "be true or false",
    "string_type": lambda _: "be text, in quotes",
    "model_type": lambda _: "be a table",
    "dict_type": lambda _: "be a table",
    "list_type": lambda _: "be an array",
    "tuple_type": lambda _: "be an array",
    "too_short": lambda context: f"have at least {context['min_length']} value",
    "literal_error": lambda context: f"be {_choices(context)}",
    "enum": lambda context: f"be {_choices(context)}",
    "string_pattern_mismatch": lambda context: _PATTERN_WORDS.get(
        context["pattern"], f"match {context['pattern']}"
    ),
}
_TYPED_TEXT = ("string_type", "literal_error", "enum")


def validate(
    model: type[ModelT], values: Mapping[str, Any], layer: ValueLayer, prefix: KeyPath = ()
) -> tuple[ModelT | None, list[Problem]]:
    """Return the model made of ``values``, or all of their problems.

    Args:
        model: of the values. Types are strict: ``"3"`` is not a number, ``1`` is not true.
        values: nested tables, as in TOML.
        layer: their places, by paths from the top.
        prefix: the path of ``values`` from the top.
    """
    try:
        return _make(model, values), []
    except ValidationError as error:
        details = _own(error.errors(include_url=False))
    spoken = _as_typed(values, details, layer, prefix)
    if spoken is not None:
        return validate(model, spoken, layer, prefix)
    problems = [_problem(model, values, detail, layer, prefix) for detail in details]
    return None, list(dict.fromkeys(problems))


def _own(details: list[ErrorDetails]) -> list[ErrorDetails]:
    """Return the problems, without arrays that are too short only because of invalid elements."""
    paths = [detail["loc"] for detail in details]
    return [
        detail
        for detail, path in zip(details, paths, strict=True)
        if detail["type"] != "too_short"
        or not any(len(other) > len(path) and other[: len(path)] == path for other in paths)
    ]


def check_section(
    model: type[ModelT],
    values: Mapping[str, Any],
    prefix: str,
    layer: ValueLayer | None = None,
    *,
    hint: str = "",
) -> ModelT:
    """Return an open table's further keys as the settings of the object that its ``name`` selects.

    Args:
        model: the settings of an algorithm, a model or a data set.
        values: the further keys, as ``OpenSection.settings`` returns them.
        prefix: the table: ``algorithm``, ``model``, ``data``.
        layer: their places, from ``Loaded.layer``, for errors.
        hint: the place of the documentation, such as ``edgefed algo show fedprox``.

    Raises:
        RecipeError: it lists every problem.
    """
    made, problems = validate(model, values, layer or ValueLayer(), (prefix,))
    if made is None:
        raise problems_error(problems, hint)
    return made


def _make(model: type[ModelT], values: Mapping[str, Any]) -> ModelT:
    """Return the model made of TOML's values.

    Through JSON, because only there a strict model takes text for a path and an array for a tuple,
    and still refuses text for a number.
    """
    return model.model_validate_json(json.dumps(values, default=str), strict=True)


def _as_typed(
    values: Mapping[str, Any], details: list[ErrorDetails], layer: ValueLayer, prefix: KeyPath
) -> Mapping[str, Any] | None:
    """Return the values with text where text was wanted, typed, and read as something else.

    ``EDGEFED_FLEET=2024`` means the fleet named 2024. None if there is nothing of the kind.
    """
    changed: dict[str, Any] | None = None
    for detail in details:
        path = detail["loc"]
        text = layer.texts.get((*prefix, *path))
        if detail["type"] not in _TYPED_TEXT or text is None or detail["input"] == text:
            continue
        changed = copy.deepcopy(dict(values)) if changed is None else changed
        _set(changed, path, text)
    return changed


def _set(values: dict[str, Any], path: KeyPath, text: str) -> None:
    """Put text at a path that exists."""
    table: Any = values
    for key in path[:-1]:
        table = table[key]
    table[path[-1]] = text


def _problem(
    model: type[BaseModel],
    values: Mapping[str, Any],
    detail: ErrorDetails,
    layer: ValueLayer,
    prefix: KeyPath,
) -> Problem:
    """Return pydantic's problem in our words."""
    path = _written(detail, values)
    origin, key = layer.nearest((*prefix, *path)), dotted((*prefix, *path))
    if detail["type"] == "extra_forbidden":
        near = _nearest_key(model, path)
        return Problem(origin, key, f"unknown key{did_you_mean(near)}", UNKNOWN_KEY, near)
    if detail["type"] == "missing":
        return Problem(origin, key, "is missing", MISSING_KEY)
    context = detail.get("ctx", {})
    if detail["type"] not in _MUST:
        return Problem(origin, key, _sentence(detail))
    must = _MUST[detail["type"]](context)
    near = ""
    if detail["type"] in ("literal_error", "enum"):
        near = nearest_name(str(detail["input"]), re.findall(r"'([^']*)'", context["expected"]))
    text = f"must {must}, got {_shown(detail['input'])}{did_you_mean(near)}"
    return Problem(origin, key, text, BAD_VALUE, near)


def _written(detail: ErrorDetails, values: Mapping[str, Any]) -> KeyPath:
    """Return the part of pydantic's path that is keys; the rest are its names for alternatives."""
    path = detail["loc"]
    here: Any = values
    for depth, key in enumerate(path):
        if not isinstance(here, (dict, list)):
            return path[:depth]
        try:
            here = here[key]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return path[: depth + 1]
    return path


def _nearest_key(model: type[BaseModel], path: KeyPath) -> str:
    """Return the known key nearest to an unknown one, or where else there is one of its name."""
    table, name = model_at(model, path[:-1]), str(path[-1])
    near = nearest_name(name, table.model_fields) if table else ""
    if near:
        return near
    homes = [(), *((key,) for key in tables(model))]
    for home in homes:
        there = model_at(model, home)
        if there and name in there.model_fields and name not in tables(there):
            return dotted((*home, name))
    return ""


def _choices(context: Mapping[str, Any]) -> str:
    """Return the allowed values, in double quotes as in TOML."""
    expected = str(context["expected"]).replace("'", '"')
    return f"one of {expected}" if '", ' in expected or '" or "' in expected else expected


def _number(value: Any) -> str:
    """Return a bound without a needless ``.0``."""
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return str(int(value))
    return str(value)


def _shown(value: Any) -> str:
    """Return a wrong value as TOML would have it, shortened."""
    if isinstance(value, (dict, list)):
        return "a table" if isinstance(value, dict) else "an array"
    if isinstance(value, float):
        return repr(value)
    shown = without_password(value) if isinstance(value, str) else value
    text = json.dumps(shown, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _sentence(detail: ErrorDetails) -> str:
    """Return pydantic's own sentence for problems without words of ours, such as a validator's."""
    text = detail["msg"].removeprefix("Value error, ").replace("Input should", "must", 1)
    return text[:1].lower() + text[1:]

"""The fields of a form for a recipe, from its JSON Schema and its present values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from edgefed.config.loading.write import toml_value

Schema = Mapping[str, Any]

_AFTER_FIRST_SENTENCE = re.compile(r"\.( .*)?$", re.DOTALL)

_LIMITS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
}


@dataclass(frozen=True)
class RecipeField:
    """One value of a recipe.

    Attributes:
        key: its dotted key.
        section: the table that it is in; empty for the recipe's own.
        text: its value as ``--set`` takes it; empty where it is unset.
        about: its description.
        choices: its allowed values, as ``--set`` takes them.
        meanings: descriptions of choices that have one, in a line.
        limits: allowed numbers, in words.
    """

    key: str
    section: str
    text: str
    about: str = ""
    choices: tuple[str, ...] = ()
    limits: str = ""
    meanings: Mapping[str, str] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """The meaning of the chosen value, or the beginning of the description."""
        return self.meanings.get(self.text) or _AFTER_FIRST_SENTENCE.sub("", self.about)

    @property
    def name(self) -> str:
        """The key without its table."""
        return self.key.removeprefix(f"{self.section}.")


def recipe_fields(schema: Schema, values: Mapping[str, Any]) -> tuple[RecipeField, ...]:
    """Return every field, in the order of the schema; for open tables their present fields.

    Args:
        schema: a recipe's, as ``edgefed config schema`` prints it.
        values: the recipe's tables.
    """
    fields: list[RecipeField] = []
    for key, described in schema["properties"].items():
        table = _table(schema, described)
        if table is None:
            fields.append(_field(key, "", described, values.get(key)))
        else:
            inner = values.get(key)
            fields += _fields_of(schema, key, table, inner if isinstance(inner, Mapping) else {})
    return tuple(sorted(fields, key=lambda one: bool(one.section)))


def value_text(value: Any) -> str:
    """Return a value as ``--set`` takes it; empty for one that is unset."""
    if value is None or isinstance(value, str):
        return value or ""
    return toml_value(value)


def _fields_of(
    schema: Schema, section: str, table: Schema, values: Mapping[str, Any]
) -> Iterator[RecipeField]:
    """Yield the fields of a table, and the further keys of the object that it names."""
    names: dict[str, dict[str, str]] = {}
    described = dict(table.get("properties", {}))
    for case in table.get("allOf", ()):
        ((key, condition),) = case["if"]["properties"].items()
        about = str(case["then"].get("description", ""))
        names.setdefault(key, {})[str(condition["const"])] = about
        default = described.get(key, {}).get("default")
        if values.get(key, default) == condition["const"]:
            further = case["then"]["properties"]
            described |= {name: entry for name, entry in further.items() if name not in described}
    for name in values:
        described.setdefault(name, {})
    for name, entry in described.items():
        value = values.get(name, entry.get("default"))
        yield _field(f"{section}.{name}", section, _resolved(schema, entry), value, names.get(name))


def _field(
    key: str, section: str, described: Schema, value: Any, names: Mapping[str, str] | None = None
) -> RecipeField:
    about = " ".join(str(described.get("description", "")).replace("``", "").split())
    choices = tuple(names or dict.fromkeys(_choices(described)))
    meanings = {name: text for name, text in (names or {}).items() if text}
    limits = _limits(described)
    return RecipeField(key, section, value_text(value), about, choices, limits, meanings)


def _choices(described: Schema) -> Iterator[str]:
    for alternative in (described, *described.get("anyOf", ()), *described.get("oneOf", ())):
        if alternative.get("type") == "boolean":
            yield from ("true", "false")
        yield from map(value_text, alternative.get("enum", ()))
        if "const" in alternative:
            yield value_text(alternative["const"])


def _limits(described: Schema) -> str:
    """Return the allowed numbers, such as ``at least 0, less than 1``."""
    for alternative in (described, *described.get("anyOf", ())):
        limits = [
            words.format(_number(alternative[name]))
            for name, words in _LIMITS.items()
            if name in alternative
        ]
        if limits:
            return ", ".join(limits)
    return ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e12 else f"{value:g}"


def _table(schema: Schema, described: Schema) -> Schema | None:
    """Return the schema of a table; None for a value."""
    resolved = _resolved(schema, described)
    return resolved if resolved.get("type") == "object" and "properties" in resolved else None


def _resolved(schema: Schema, described: Schema) -> Schema:
    name = str(described.get("$ref", "")).rpartition("/")[2]
    return {**schema["$defs"][name], **described} if name in schema.get("$defs", {}) else described

"""Write a model as documented TOML text that loads back to the same model."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from edgefed.config.values.models import tables

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(model: BaseModel, *, comments: bool = True) -> str:
    """Return a recipe or settings as TOML; a key whose value is None is a comment, or left out.

    Args:
        model: the recipe or settings.
        comments: whether a description precedes each key.
    """
    return "\n".join(_table(model, (), comments)).strip() + "\n"


def _table(model: BaseModel, path: tuple[str, ...], comments: bool) -> Iterator[str]:
    """Yield the lines of one table, then those of the tables in it."""
    kind = type(model)
    if path:
        yield f"[{'.'.join(_key(part) for part in path)}]"
    if comments:
        yield from _comment(inspect.cleandoc(kind.__doc__ or ""))
    for key, value in model.model_dump(exclude=set(tables(kind))).items():
        field = kind.model_fields.get(key)
        if comments and field:
            yield from ("", *_comment(field.description or ""))
        if value is not None:
            yield f"{_key(key)} = {toml_value(value)}"
        elif comments:
            yield f"# {_key(key)} ="
    for key in tables(kind):
        yield ""
        yield from _table(getattr(model, key), (*path, key), comments)


def tables_toml(values: Mapping[str, Any]) -> str:
    """Return nested tables as TOML; values that are None are left out."""
    return "\n".join(_plain_table(values, ())).strip() + "\n"


def _plain_table(values: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """Yield the lines of one table, then those of the tables in it."""
    if path:
        yield f"[{'.'.join(_key(part) for part in path)}]"
    for key, value in values.items():
        if not isinstance(value, Mapping) and value is not None:
            yield f"{_key(key)} = {toml_value(value)}"
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield ""
            yield from _plain_table(value, (*path, key))


def _comment(text: str) -> Iterator[str]:
    """Yield a docstring as comment lines."""
    for line in text.replace("``", "`").splitlines():
        yield f"# {line}".rstrip()


def _key(key: str) -> str:
    """Return a key, in quotes where it needs them."""
    return key if _BARE_KEY.fullmatch(key) else _text(key)


def toml_value(value: Any) -> str:
    """Return a value as TOML, on one line."""
    if isinstance(value, Mapping):
        pairs = (f"{_key(key)} = {toml_value(inner)}" for key, inner in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(toml_value(inner) for inner in value)}]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value) if isinstance(value, (bool, int)) else _text(str(value))


def _text(text: str) -> str:
    """Return a basic string: JSON's, whose escapes are TOML's, and DEL, which only TOML forbids."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

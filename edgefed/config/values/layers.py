"""Layers of values by precedence; each value keeps the place where it was set."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from edgefed.config.values.toml import Document
from edgefed.config.values.toml_positions import KeyPath


@dataclass(frozen=True)
class Origin:
    """Where a value was written.

    Attributes:
        kind: which sort of place.
        name: the flag, the variable, or the file.
        line: in a file, counted from 1; 0 elsewhere.
    """

    kind: Literal["flag", "environment", "file", "default"] = "default"
    name: str = ""
    line: int = 0

    def __str__(self) -> str:
        if self.kind == "file":
            return f"{self.name} line {self.line}" if self.line else self.name
        return f"{self.kind} {self.name}".rstrip()

    def locate(self, key: str) -> str:
        """Return how a message begins: ``FILE:LINE: KEY``, ``--flag``, or ``EDGEFED_NAME``."""
        if self.kind == "file":
            place = f"{self.name}:{self.line}" if self.line else self.name
            return f"{place}: {key}" if key else place
        return self.name or key

    def to_json(self) -> dict[str, str | int]:
        """Return the object that ``--json`` prints."""
        return {
            "source": str(self),
            "file": self.name if self.kind == "file" else "",
            "line": self.line,
        }


DEFAULT = Origin()


@dataclass(frozen=True)
class ValueLayer:
    """Values from one place, or merged from several.

    Attributes:
        values: nested tables.
        origins: the place where each key path of ``values`` was written.
        texts: the typed text, for values from a flag or a variable.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    origins: Mapping[KeyPath, Origin] = field(default_factory=dict)
    texts: Mapping[KeyPath, str] = field(default_factory=dict)

    def origin(self, path: KeyPath) -> Origin:
        """Return the exact place where this key was written; ``DEFAULT`` if nowhere."""
        return self.origins.get(path, DEFAULT)

    def nearest(self, path: KeyPath) -> Origin:
        """Return the place where this key was written, or else that of the table around it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.origins:
                return self.origins[path[:length]]
        return self.origins.get((), DEFAULT)


def document_layer(document: Document, *, table: str = "") -> ValueLayer:
    """Return the layer of a file, or of one of its top-level tables, empty if it is not there."""
    origins = {path: Origin("file", document.name, line) for path, line in document.lines.items()}
    origins[()] = Origin("file", document.name)
    if not table:
        return ValueLayer(document.values, origins)
    inside = {path[1:]: origin for path, origin in origins.items() if path[:1] == (table,)}
    return ValueLayer(document.values.get(table, {}), inside)


def without(layer: ValueLayer, key: str) -> ValueLayer:
    """Return the layer without one top-level key."""
    values = {name: value for name, value in layer.values.items() if name != key}
    return ValueLayer(values, layer.origins, layer.texts)


def single(
    path: tuple[str, ...], value: Any, origin: Origin, text: str | None = None
) -> ValueLayer:
    """Return the layer of one flag or variable that sets the value at ``path``."""
    nested: Any = value
    for key in reversed(path):
        nested = {key: nested}
    origins: dict[KeyPath, Origin] = {(*path, *inner): origin for inner, _ in leaves(value)}
    origins[path] = origin
    return ValueLayer(nested, origins, {} if text is None else {path: text})


def leaves(value: Any) -> Iterator[tuple[KeyPath, Any]]:
    """Yield every value that is not a table, with its path; an empty table counts as a value."""
    if not isinstance(value, Mapping) or not value:
        yield (), value
        return
    for key, inner in value.items():
        for path, leaf in leaves(inner):
            yield (key, *path), leaf


def merge(layers: Sequence[ValueLayer]) -> ValueLayer:
    """Lay layers over each other, the strongest first; tables merge, all else is replaced."""
    values: dict[str, Any] = {}
    origins: dict[KeyPath, Origin] = {}
    texts: dict[KeyPath, str] = {}
    for layer in reversed(layers):
        put = {path for path, value in leaves(layer.values) if _put(values, path, value)}
        _forget(origins, put)
        _forget(texts, put, around=True)
        origins.update(layer.origins)
        texts.update(layer.texts)
    return ValueLayer(values, origins, texts)


def _put(values: dict[str, Any], path: KeyPath, value: Any) -> bool:
    """Set the value at ``path``; say no for an empty table where there is a table already."""
    *parents, last = path or ("",)
    table: dict[Any, Any] = values
    for key in parents:
        if not isinstance(table.get(key), dict):
            table[key] = {}
        table = table[key]
    if not path or (value == {} and isinstance(table.get(last), dict)):
        return False
    table[last] = copy.deepcopy(value)
    return True


def _forget(known: dict[KeyPath, Any], put: set[KeyPath], *, around: bool = False) -> None:
    """Drop the facts about keys that are replaced, about keys in them, and around them."""
    outer = {path[:length] for path in put for length in range(len(path))} if around else set()
    for path in list(known):
        replaced = any(path[:length] in put for length in range(len(path) + 1))
        if replaced or path in outer:
            del known[path]

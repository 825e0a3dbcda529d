"""Read a TOML file as values with their lines; every failure becomes one clear error."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefed.config.values.toml_limits import excess
from edgefed.config.values.toml_positions import KeyPath, key_lines
from edgefed.errors import RecipeError

MAX_FILE_BYTES = 2**20
"""Longest settings file or recipe that is read."""

BAD_SYNTAX = "recipe.syntax"
TOO_LARGE = "recipe.too_large"

Check = Callable[[os.stat_result], None]
"""Raises if a file of this owner and mode must not be read."""

_tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
_PLACE = re.compile(r"^(?P<what>.*) \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end.*)\)$")


@dataclass(frozen=True)
class Document:
    """The contents of a TOML file.

    Attributes:
        name: of the file in messages.
        values: tables as dicts.
        lines: the line, counted from 1, of each key path.
    """

    name: str
    values: Mapping[str, Any]
    lines: Mapping[KeyPath, int]


@dataclass(frozen=True)
class Mistake:
    """The place of an error in a TOML text: line and column, counted from 1; 0 where unknown."""

    what: str
    line: int = 0
    column: int = 0
    code: str = BAD_SYNTAX
    hint: str = "strings need quotes; tables are [name], keys are key = value"

    def locate(self, name: str) -> str:
        """Return ``FILE:LINE:COLUMN``."""
        return f"{name}:{self.line}:{self.column}" if self.line else name


def _anybody(status: os.stat_result) -> None:
    """Accept a file of any owner."""


def read_toml(path: Path, name: str = "", check: Check = _anybody) -> Document:
    """Read a TOML file; ``name`` is its name in messages, by default its path.

    ``check`` is called with the opened file's status before it is read.

    Raises:
        RecipeError: the file is missing (``recipe.missing``), cannot be read
            (``recipe.unreadable``), is not TOML (``recipe.syntax``), or is too deep or has too many
            keys (``recipe.too_large``).
    """
    name = name or str(path)
    return parse_toml(_decode(_read_bytes(path, name, check), name), name)


def read_text(path: Path, name: str) -> str:
    """Read a small UTF-8 file.

    Raises:
        RecipeError: it is missing (``recipe.missing``) or cannot be read (``recipe.unreadable``).
    """
    return _decode(_read_bytes(path, name, _anybody), name)


def parse_toml(text: str, name: str) -> Document:
    """Parse a TOML document.

    Raises:
        RecipeError: it is not TOML, and the message has file, line and column; or it exceeds a
            limit of ``toml_limits``.
    """
    document = try_toml(text, name)
    if isinstance(document, Document):
        return document
    raise RecipeError(
        f"{document.locate(name)}: {document.what}.", code=document.code, hint=document.hint
    )


def try_toml(text: str, name: str) -> Document | Mistake:
    """Parse a TOML document, or return the place of its mistake."""
    # Only "\r\n" is a line end of TOML; the parser too reads it as "\n".
    text = text.replace("\r\n", "\n")
    if too_much := excess(text):
        return Mistake(too_much, code=TOO_LARGE, hint="name a settings file or a recipe")
    try:
        return Document(name, _tomllib.loads(text), key_lines(text))
    except ValueError as error:
        return _mistake(str(error), text)


def parse_value(text: str) -> Any:
    """Return ``text`` as a TOML value, or the text itself if it is not one.

    ``3`` is a number, ``true`` a truth value, ``[1, 2]`` an array, and ``fedavg`` a string.
    """
    # Inside an array, neither a comment nor a second value can slip through.
    array = f"value = [{text},]"
    if excess(array):
        return text
    try:
        document = _tomllib.loads(array)
    except ValueError:
        return text
    values = document["value"]
    return values[0] if len(document) == 1 and len(values) == 1 else text


def _read_bytes(path: Path, name: str, check: Check) -> bytes:
    """Read a file that should be small."""
    try:
        with path.open("rb") as file:
            check(os.fstat(file.fileno()))
            data = file.read(MAX_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RecipeError(
            f"{name}: the file does not exist.", code="recipe.missing", hint="check the path"
        ) from error
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        raise RecipeError(
            f"{name}: cannot be read: {reason}.",
            code="recipe.unreadable",
            hint="name a TOML file that you have permission to read",
        ) from error
    if len(data) > MAX_FILE_BYTES:
        raise RecipeError(
            f"{name}: is longer than {MAX_FILE_BYTES} bytes.",
            code="recipe.unreadable",
            hint="name a settings file or a recipe",
        )
    return data


def _decode(data: bytes, name: str) -> str:
    """Decode UTF-8, with or without a byte order mark."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RecipeError(
            f"{name}:{line}: is not UTF-8 text.",
            code="recipe.unreadable",
            hint="save the file as UTF-8",
        ) from error


def _mistake(reason: str, text: str) -> Mistake:
    """Return the parser's message as a problem with its place."""
    match = _PLACE.match(reason)
    what = (match["what"] if match else reason).rstrip(".")
    what = f"not valid TOML: {what[:1].lower()}{what[1:]}"
    if match is None:
        return Mistake(what)
    if match["line"]:
        return Mistake(what, int(match["line"]), int(match["column"]))
    lines = text.split("\n")
    return Mistake(what, len(lines), len(lines[-1]) + 1)

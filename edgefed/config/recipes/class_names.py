"""Class names in a recipe: normalised, unique, and short enough for a message."""

from __future__ import annotations

import unicodedata
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from edgefed.wire import limits


def normal(name: str) -> str:
    """Return a class's name in Unicode's composed form, without blanks around it.

    Systems differ in the form in which they keep a folder's name, and none is seen.
    """
    return unicodedata.normalize("NFC", name).strip()


def _normal(value: Any) -> Any:
    return normal(value) if isinstance(value, str) else value


def _each_once(names: tuple[str, ...]) -> tuple[str, ...]:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"names the class '{twice[0]}' twice")
    if sum(len(name.encode()) for name in names) > limits.MAX_CLASS_NAMES_BYTES:
        raise ValueError(f"has more than {limits.MAX_CLASS_NAMES_BYTES} bytes of names")
    return names


def _form(value: Any) -> str:
    """Return which of the two forms of `Classes` a value has; only that one is checked."""
    return "count" if isinstance(value, int) else "names"


ClassName = Annotated[
    str,
    BeforeValidator(_normal),
    Field(min_length=1, max_length=limits.MAX_CLASS_NAME, pattern=limits.CLASS_NAME_PATTERN),
]

Classes = Annotated[
    Annotated[
        tuple[ClassName, ...],
        Field(max_length=limits.MAX_ITEMS),
        AfterValidator(_each_once),
        Tag("names"),
    ]
    | Annotated[int, Field(ge=0, le=limits.MAX_ITEMS), Tag("count")],
    Discriminator(_form),
]
"""A run's classes: their names in order, or only how many there are."""

"""Weights of classes in a recipe: a word, or a number for each class."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag

from edgefed.wire import limits


def _some_count(weights: tuple[float, ...]) -> tuple[float, ...]:
    if not any(weights):
        raise ValueError("must have a weight above 0")
    return weights


def _form(value: Any) -> str:
    """Return which of the two forms of `ClassWeights` a value has; only that one is checked."""
    return "numbers" if isinstance(value, (list, tuple)) else "word"


ClassWeights = Annotated[
    Annotated[Literal["none", "balanced"], Tag("word")]
    | Annotated[
        tuple[Annotated[float, Field(ge=0, le=1e6)], ...],
        Field(min_length=1, max_length=limits.MAX_ITEMS),
        AfterValidator(_some_count),
        Tag("numbers"),
    ],
    Discriminator(_form),
]
"""Which weights: ``none``, ``balanced``, or a number for each class."""

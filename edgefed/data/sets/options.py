"""Settings of a data set: the additional keys of the recipe's data section."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from edgefed.config.recipes.sections import Section
from edgefed.data.base.limits import SizedOptions
from edgefed.data.base.preparation import PreparationOptions
from edgefed.data.partitioners.options import PartitionOptions
from edgefed.data.transforms.options import TransformOptions
from edgefed.errors import RecipeError

Options = TypeVar("Options", bound=Section)


class DataOptions(PreparationOptions, PartitionOptions, TransformOptions):
    """Keys of every data set that has samples."""

    limit: Annotated[int, Field(ge=0)] = 0
    """Maximum number of training samples, drawn at random from the run's seed; 0 for all."""


class SplitOptions(SizedOptions, DataOptions):
    """Keys of a data set that may come without a test part."""

    path: Annotated[str, Field(min_length=1)]
    """The coordinator's file or folder; a relative path starts at the recipe's folder."""

    test_share: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Fraction held out for the coordinator's test if the data has no test part."""


def checked_options(model: type[Options], values: Mapping[str, Any], where: str) -> Options:
    """Return ``values`` as ``model``.

    Args:
        model: the keys and their allowed values.
        values: from the user.
        where: names the data set in the error.

    Raises:
        RecipeError: a key is unknown, missing or out of range.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        raise _explained(error.errors()[0], model, where) from error


def nearest(word: str, known: list[str]) -> str:
    """Return a hint that names the known word nearest to ``word``, or all of them."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean '{close[0]}'?" if close else f"choose from: {', '.join(known)}"


def _explained(detail: ErrorDetails, model: type[Section], where: str) -> RecipeError:
    key = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        known = list(model.model_fields)
        message = f"{where} has no key '{key}'."
        return RecipeError(message, code="recipe.data", hint=nearest(key, known))
    description = model.model_fields[str(detail["loc"][0])].description or ""
    message = f"{where}: '{key}' cannot be used: {detail['msg']}."
    return RecipeError(message, code="recipe.data", hint=description.split("\n")[0])

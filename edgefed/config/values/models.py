"""The structure of a pydantic model of settings: its tables, and the model that owns a key."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel


def tables(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Return the fields of a model that are tables, with their models."""
    return {
        key: field.annotation
        for key, field in model.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    }


def model_at(model: type[BaseModel], path: Sequence[str | int]) -> type[BaseModel] | None:
    """Return the model of the table at ``path``; None where no model rules it."""
    here: type[BaseModel] | None = model
    for key in path:
        here = tables(here).get(str(key)) if here else None
    return here


def has_extras(model: type[BaseModel]) -> bool:
    """Return whether a table may have keys that its model does not know."""
    return model.model_config.get("extra") == "allow"

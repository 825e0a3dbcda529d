"""JSON Schemas of the recipe and the settings files, for editors and documentation."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

from edgefed.config.fleet.settings import AgentSettings, Settings
from edgefed.config.recipes.recipe import Recipe

Kind = Literal["recipe", "settings", "agent"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class SettingsFile(Settings):
    """``edgefed.toml``: the settings of ``edgefed``, and values for every recipe."""

    recipe: Recipe = Recipe()
    """Values for every recipe that does not set its own."""


KINDS: dict[Kind, type[BaseModel]] = {
    "recipe": Recipe,
    "settings": SettingsFile,
    "agent": AgentSettings,
}
"""The model of each kind of file."""


def schema(kind: Kind) -> dict[str, Any]:
    """Return the JSON Schema of a kind of file."""
    return {"$schema": DIALECT, **KINDS[kind].model_json_schema()}

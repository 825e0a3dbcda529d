"""Settings of the dashboard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator

from edgefed.config.sections import Section


class DashboardSettings(Section):
    """How the dashboard is used."""

    keys: dict[str, str] = Field(default_factory=dict)
    """Keys of actions, such as ``"run.pause" = "b"``; several with commas between
    them."""

    @field_validator("keys", mode="before")
    @classmethod
    def _quoted(cls, value: Any) -> Any:
        """Say how a name is written where TOML read it as a table."""
        if isinstance(value, Mapping):
            for table, inner in value.items():
                for name in inner if isinstance(inner, Mapping) else ():
                    raise ValueError(f'write the action in quotes: "{table}.{name}" = …')
        return value

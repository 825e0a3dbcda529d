"""The base of all parts of a snapshot."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class View(BaseModel):
    """A frozen part of a snapshot."""

    model_config = ConfigDict(frozen=True, extra="ignore")

"""A user's choices on the dashboard, stored between starts."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from edgefed.files.writing import make_folder, write_atomic

FILE = "dashboard.json"
"""Name of the file in the state folder."""


class Preferences(BaseModel):
    """The choices of one user on one machine."""

    theme: str = Field("edgefed", max_length=64)


def load_preferences(path: Path) -> Preferences:
    """Return the stored choices; a missing or broken file counts as none."""
    try:
        return Preferences.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return Preferences()


def save_preferences(path: Path, chosen: Preferences) -> None:
    """Remember the choices.

    Raises:
        StorageError: the file cannot be written.
    """
    make_folder(path.parent)
    write_atomic(path, chosen.model_dump_json().encode())

"""Paths of data as a user writes them, and errors for missing files."""

from __future__ import annotations

from pathlib import Path

from edgefed.errors import MissingDataError

DECODED = "decoded"
"""Folder for images that were decoded once."""


def resolve(path: str, folder: Path | None) -> Path:
    """Return ``path`` with ``~`` expanded; a relative one starts at ``folder``, or here."""
    given = Path(path).expanduser()
    return given if folder is None else folder / given


def require_file(path: Path, hint: str = "check the path") -> None:
    """Raise a `MissingDataError` if there is no file at ``path``."""
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise MissingDataError(f"{path} {what}.", code="data.missing", hint=hint)


def require_folder(path: Path) -> None:
    """Raise a `MissingDataError` if there is no folder at ``path``."""
    if not path.is_dir():
        what = "is a file, not a folder" if path.exists() else "does not exist"
        raise MissingDataError(f"{path} {what}.", code="data.missing", hint="check the path")

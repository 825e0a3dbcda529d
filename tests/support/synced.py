"""Which files and folders a program has the disk write, and what is in a folder at that moment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def synced_folders(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], Path]]:
    """Return a list that fills with the contents and the path of all that is synced from now on."""
    found: list[tuple[list[str], Path]] = []
    sync = os.fsync

    def noting(handle: int) -> None:
        sync(handle)
        path = Path(f"/proc/self/fd/{handle}").readlink()
        names = sorted(each.name for each in path.iterdir()) if path.is_dir() else []
        found.append((names, path))

    monkeypatch.setattr(os, "fsync", noting)
    return found

"""Find the files and folders that others than their owner may use."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OTHERS = stat.S_IRWXG | stat.S_IRWXO


def open_to_others(folder: Path) -> dict[str, str]:
    """Return the mode of each path below a folder that group or others have rights to."""
    paths = [path for path in (folder, *folder.rglob("*")) if not path.is_symlink()]
    modes = {str(path.relative_to(folder)): path.stat().st_mode for path in paths}
    return {path: oct(mode) for path, mode in modes.items() if mode & OTHERS}


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Let this process, and those that it starts, take these rights from new files."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)

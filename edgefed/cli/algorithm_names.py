"""The names of the algorithms, read from their source files: their modules import torch."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from pathlib import Path

import edgefed.algorithms

_NAME = re.compile(r'^    name = "(\w+)"$', re.MULTILINE)


def algorithm_names() -> list[str]:
    """Return the names of the algorithms of this package and of installed ones, sorted."""
    files = (file for folder in edgefed.algorithms.__path__ for file in Path(folder).glob("*.py"))
    own = {name for file in files for name in _NAME.findall(file.read_text(encoding="utf-8"))}
    return sorted(own | {point.name for point in entry_points(group="edgefed.algorithms")})

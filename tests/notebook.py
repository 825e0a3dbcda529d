"""A notebook in this process: cells in a ``__main__`` of theirs, compiled as IPython does."""

from __future__ import annotations

import linecache
import sys
from types import ModuleType
from typing import Any

import pytest


class Notebook:
    """Executes cells in a module ``__main__`` without a file.

    Args:
        monkeypatch: puts the test's own ``__main__`` back.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._main = ModuleType("__main__")
        self._count = 0
        monkeypatch.setitem(sys.modules, "__main__", self._main)

    def cell(self, text: str) -> None:
        self._count += 1
        name = f"/tmp/ipykernel_1/{self._count}.py"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(text, name, "exec"), vars(self._main))

    def __getitem__(self, name: str) -> Any:
        return vars(self._main)[name]

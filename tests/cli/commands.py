"""Run ``edgefed`` in this process, like a user without settings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from typer.testing import CliRunner

from edgefed.cli.common.context import Globals
from edgefed.cli.common.recipes import Typed, checked_recipe
from edgefed.cli.main import app
from edgefed.config.recipes.recipe import Recipe
from tests.processes import clean_environment


@dataclass(frozen=True)
class Told:
    """What a command said and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The answer, which must be one JSON value."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The answers of a stream, one JSON value a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    def failed(self, code: int, name: str, *words: str) -> None:
        """Check that it failed with one clear message and nothing else."""
        __tracebackhide__ = True
        first, *rest = self.err.splitlines()
        assert (self.code, self.out) == (code, ""), self
        assert first.startswith("edgefed: error: "), self
        assert first.endswith(f"  [{name}]"), self
        assert [line for line in rest if not line.startswith("  ")] == [], self
        for word in words:
            assert word in self.err, self


@contextmanager
def only(environment: Mapping[str, str]) -> Iterator[None]:
    """Let nothing but ``environment`` be set."""
    with mock.patch.dict("os.environ", environment, clear=True):
        yield


def edgefed(*arguments: str | Path, state: Path | None = None) -> Told:
    """Run a command to its end."""
    extra = {"EDGEFED_STATE": str(state)} if state is not None else {}
    with only({**clean_environment(), **extra}):
        told = CliRunner().invoke(app, [str(word) for word in arguments])
    if told.exception is not None and not isinstance(told.exception, SystemExit):
        raise told.exception
    return Told(told.exit_code, told.stdout, told.stderr)


def loaded(path: Path) -> Recipe:
    """Return a recipe as a command would load it."""
    return checked_recipe(Globals(no_config=True), Typed(path))


def recipe_file(folder: Path, text: str) -> Path:
    """Write a recipe and return its path."""
    path = folder / "recipe.toml"
    path.write_text(text)
    return path


TINY = """
name = "tiny"
[model]
name = "mlp"
hidden = [8]
[data]
name = "digits"
limit = 300
[training]
learning_rate = 0.2
[rounds]
count = 3
min_devices = 2
[simulation]
devices = 2
"""
"""A recipe whose rounds take a moment."""

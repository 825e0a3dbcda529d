"""Worlds that are closed after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.data.base.types import Shard
from tests.run_fixture import World

MakeWorld = Callable[..., World]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[MakeWorld]:
    """Make worlds, each in a folder of its own."""
    made: list[World] = []

    def new(plan: Recipe | None = None, parts: Sequence[Shard] | None = None, **how: Any) -> World:
        made.append(World(tmp_path / str(len(made)), plan, parts, **how))
        return made[-1]

    yield new
    for each in made:
        each.close()

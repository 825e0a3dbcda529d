"""Worlds that are closed after the test, and one torch thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from edgefed.config.recipe import Recipe
from edgefed.data.types import Shard
from tests.run_fixture import World

MakeWorld = Callable[..., World]


@pytest.fixture(autouse=True, scope="package")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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

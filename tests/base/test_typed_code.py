"""The digest of code that was typed into a notebook."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edgefed.errors import StorageError
from edgefed.files.typed_code import typed_digest
from tests.notebook import Notebook

IMPORTS = """
import enum
from dataclasses import dataclass, field
from functools import cached_property, partial
import numpy as np
import torch
from edgefed.extension import Cover, FedAvg, Partitioner, Section
FACTOR = 0.5
SIZES = {"small": [1, (2, 3)], "of": np.arange(3)}
"""
CODE = '''
class Options(Section):
    """Keys."""

    count: int = 1
    """A number."""


class Mode(enum.Enum):
    FIRST = "a"


@dataclass(frozen=True)
class Weighted:
    power: float = 1.0
    others: list = field(default_factory=list)

    def __call__(self, batch):
        return self.power * batch


def scaled(value, by=2):
    def inner():
        return value * FACTOR + SIZES["of"].sum() + by

    return inner()


def adding(number):
    def add(self):
        return number

    return add


class Base(FedAvg):
    settings_of = Options


class Mine(Base):
    rate = 7
    mode = Mode.FIRST
    loss = Weighted()
    added = adding(5)
    part = partial(scaled, by=6)

    @torch.no_grad()
    def quiet(self):
        return 11

    @staticmethod
    def fixed():
        return {13, 17}

    @property
    def shown(self):
        return Mine.rate

    @cached_property
    def kept(self):
        return lambda: 19

    def merge(self, state, exchange, answers):
        import own_module

        return scaled(23)


def split(request, rng):
    return ()


PARTS = Partitioner(split, Cover.ALL, options=Options)
'''
MINE, PARTS = "__main__:Mine", "__main__:PARTS"


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Notebook:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_module.py").write_text("VALUE = 1\n")
    made = Notebook(monkeypatch)
    made.cell(IMPORTS)
    made.cell(CODE)
    return made


def test_the_same_code_has_the_same_digest_whatever_other_cells_hold(notebook: Notebook) -> None:
    before = typed_digest(MINE)
    notebook.cell("other = object()\ndef unrelated():\n    return other\n")
    notebook.cell(f"# a remark\n\n{CODE}")
    assert typed_digest(MINE) == before
    assert typed_digest(MINE, notebook["Mine"]) == before
    assert typed_digest(PARTS) != before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("FACTOR", "-FACTOR"),  # instructions
        ("by=2", "by=3"),  # a default
        ("adding(5)", "adding(6)"),  # a value of a closure
        ("rate = 7", "rate = 8"),  # attributes
        ('FIRST = "a"', 'FIRST = "b"'),
        ("power: float = 1.0", "power: float = 2.0"),
        ("default_factory=list", "default_factory=dict"),
        ("Weighted()", "Weighted(power=3.0)"),
        ("by=6", "by=7"),
        ("return 11", "return 12"),  # of a function around which another one is
        ("{13, 17}", "{13, 18}"),
        ("Mine.rate", "Mine.rate + 1"),
        ("lambda: 19", "lambda: 20"),
        ("scaled(23)", "scaled(24)"),
        ("count: int = 1", "count: int = 2"),  # of a base
        ("settings_of = Options", "settings_of = None"),
        ("class Mine(Base)", "class Mine(FedAvg)"),
    ],
)
def test_each_part_of_the_code_counts(notebook: Notebook, old: str, new: str) -> None:
    assert CODE.count(old) == 1
    before = typed_digest(MINE)
    notebook.cell(CODE.replace(old, new))
    assert typed_digest(MINE) != before
    notebook.cell(CODE)
    assert typed_digest(MINE) == before


@pytest.mark.parametrize("cell", ["FACTOR = 0.25", 'SIZES["of"] = np.arange(4)', "Cover = None"])
def test_values_count_that_the_code_names(notebook: Notebook, cell: str) -> None:
    before = typed_digest(MINE)
    notebook.cell(cell)
    assert (typed_digest(MINE) == before) is cell.startswith("Cover")


def test_a_partition_counts_with_its_function_and_options(notebook: Notebook) -> None:
    before = typed_digest(PARTS)
    for old, new in (("Cover.ALL", "Cover.SOME"), ("return ()", "return []"), ("= 1\n", "= 2\n")):
        notebook.cell(CODE.replace(old, new))
        assert typed_digest(PARTS) != before


def test_a_module_beside_the_notebook_counts_as_it_was_loaded_last(
    notebook: Notebook, tmp_path: Path
) -> None:
    notebook.cell("import importlib, own_module\n")
    before, file = typed_digest(MINE), tmp_path / "own_module.py"
    file.write_text("VALUE = 22\n")
    assert typed_digest(MINE) == before, "the session still has the old module"
    notebook.cell("importlib.reload(own_module)\n")
    assert typed_digest(MINE) != before
    sys.modules.pop("own_module")


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("FACTOR = np.random.default_rng(1)", "FACTOR of type Generator"),
        ('SIZES["of"] = np.array([object()])', "an array of objects"),
        ("SIZES['self'] = SIZES", "recursion"),
        ("del Mine", "has no attribute 'Mine'"),
    ],
)
def test_code_that_cannot_be_known_has_no_digest(notebook: Notebook, cell: str, words: str) -> None:
    notebook.cell(cell)
    with pytest.raises(StorageError) as caught:
        typed_digest(MINE)
    assert caught.value.code == "source.unreadable"
    assert words in caught.value.message

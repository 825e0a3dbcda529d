"""Plug-ins import from ``edgefed.extension`` alone; the paths published before still work."""

from __future__ import annotations

import ast
import importlib
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import edgefed
from edgefed import extension, published_paths
from edgefed.published_paths import PATHS, RENAMED
from tests.docs.pages import ROOT, blocks

EXAMPLES = (
    *(ROOT / "tests" / "example_scaffold" / "example_scaffold").glob("*.py"),
    ROOT / "tests" / "extensions" / "plugin_examples.py",
)
PAGES = ("extensions.md", "algorithm-interface.md")
PUBLISHED = [(path, name) for path, names in PATHS.items() for name in names.split()]


def imported(source: str) -> set[str]:
    """Return the modules of EdgeFed that a source imports from."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return {each for each in found if each.partition(".")[0] == "edgefed"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_plug_in_imports_nothing_else(path: Path) -> None:
    assert imported(path.read_text()) <= {"edgefed.extension"}


@pytest.mark.parametrize("page", PAGES)
def test_an_example_of_the_documentation_imports_nothing_else(page: str) -> None:
    sources = {
        block.example: block.text
        for block in blocks(ROOT / "docs" / page)
        if block.example and "import" in block.text
    }
    tests = sources.pop("contract", "")
    assert all(imported(each) <= {"edgefed.extension"} for each in sources.values())
    assert any(imported(each) for each in sources.values())
    assert {each.rpartition(".")[0] for each in imported(tests)} <= {"edgefed.testing"}


def test_it_has_each_of_its_names_once_and_no_others() -> None:
    public = {name for name in vars(extension) if not name.startswith("_")} - {"annotations"}
    assert sorted(extension.__all__) == sorted(public)


# -- published paths ------------------------------------------------------------------------------


@pytest.fixture
def _moved(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Publish paths of modules that are no longer there."""
    moved = {"gone": "ExactMean", "wide.room.gone": "ExactMean trained"}
    monkeypatch.setattr(published_paths, "PATHS", moved)
    renamed = {("wide.room.gone", "trained"): "trained_arrays"}
    monkeypatch.setattr(published_paths, "RENAMED", renamed)
    yield
    for name in ("gone", "wide", "wide.room", "wide.room.gone"):
        sys.modules.pop(f"edgefed.{name}", None)
    for name in ("gone", "wide"):
        vars(edgefed).pop(name, None)


@pytest.mark.parametrize(("path", "name"), PUBLISHED)
def test_a_published_path_leads_to_the_same_thing(path: str, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        found = getattr(importlib.import_module(f"edgefed.{path}"), name)
    assert found is getattr(extension, RENAMED.get((path, name), name))


def test_a_name_that_a_module_had_for_plug_ins_works_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match="import Chosen from edgefed.extension") as caught:
        from edgefed.algorithms.base import Chosen  # type: ignore[import-not-found]
    assert Chosen is extension.Chosen
    assert caught[0].filename == __file__
    with pytest.raises(ImportError, match="cannot import name 'Chose'"):
        exec("from edgefed.algorithms.base import Chose")


@pytest.mark.usefixtures("_moved")
def test_a_module_that_moved_works_with_a_warning() -> None:
    for path in ("gone", "wide.room.gone"):
        with pytest.warns(DeprecationWarning, match=f"edgefed.{path}.ExactMean will be removed"):
            names: dict[str, Any] = {}
            exec(f"from edgefed.{path} import ExactMean as found", names)
        assert names["found"] is extension.ExactMean
    with pytest.warns(DeprecationWarning, match="import trained_arrays from"):
        found = importlib.import_module("edgefed.wide.room.gone").trained
    assert found is extension.trained_arrays
    with pytest.raises(ImportError, match="cannot import name 'Payload'"):
        exec("from edgefed.gone import Payload")
    with pytest.raises(AttributeError, match=r"'edgefed\.wide'"):
        importlib.import_module("edgefed.wide").ExactMean  # noqa: B018


@pytest.mark.usefixtures("_moved")
@pytest.mark.parametrize("name", ["edgefed.never", "edgefed.wide.roo", "never.gone"])
def test_a_module_that_was_never_there_is_not_found(name: str) -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(name)

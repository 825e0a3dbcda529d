"""Every path, module and class that the pages about the code name exists; so do the layers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import edgefed
from edgefed.algorithms.composed.registry import PLUGINS
from edgefed.algorithms.selection.registry import SELECTOR_PLUGINS
from edgefed.config.fleet.tracker_names import TRACKER_PLUGINS
from edgefed.data.partitioners.registry import PARTITION_PLUGINS
from edgefed.data.sets.datasets import DATASET_PLUGINS
from edgefed.learn.modeling.model_building import NETWORK_PLUGINS
from tests.docs.pages import PAGES, ROOT

PACKAGES = ("edgefed", "device_agent", "broker")
ROOTS = (ROOT, ROOT / "edgefed")
"""Folders that the pages' paths and modules are relative to."""

ABOUT_CODE = [
    page
    for page in PAGES
    if page.name in ("architecture.md", "algorithm-interface.md", "CONTRIBUTING.md")
]
"""In other pages `data.name` is a key of a recipe, or an error's code, and no module."""

_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)+/?")
_MODULE = re.compile(r"[a-z_]\w*(?:\.[a-z_]\w*)+")
_CLASS = re.compile(r"[A-Z][A-Za-z]*[a-z][A-Za-z]*")
_DEFINED = re.compile(r"^ *class (\w+)[(:]", re.MULTILINE)
TOPS = {path.name for root in ROOTS for path in root.iterdir() if path.is_dir()}
INNER = {path.parent.name for path in (ROOT / "edgefed").glob("*/__init__.py")}
FILES = ("jsonl", "toml", "csv", "json")
FOREIGN = {"False", "None", "Protocol", "True"}


def code(page: Path) -> Iterator[str]:
    """Yield what a page sets as code, outside of fenced blocks."""
    for match in _CODE.finditer(_FENCED.sub("", page.read_text(encoding="utf-8"))):
        yield match[1]


def paths(page: Path) -> set[str]:
    """Return the paths of this repository that a page names."""
    found = (each.rstrip("/") for each in code(page) if _PATH.fullmatch(each))
    return {each for each in found if each.split("/")[0] in TOPS and each.split("/")[0] != "docs"}


def modules(page: Path) -> set[str]:
    """Return the dotted names of this repository that a page names."""
    tops = {"edgefed", "device_agent", *({"broker", *INNER} if page in ABOUT_CODE else ())}
    return {
        each
        for each in code(page)
        if _MODULE.fullmatch(each)
        and each.split(".")[0] in tops
        and each.split(".")[1] not in FILES
    }


def is_there(name: str) -> bool:
    """Whether a dotted name is a module or package, is defined at the top of one, or public."""
    package, _, public = name.partition(".")
    if package == "edgefed" and public in edgefed.__all__:
        return True
    for root in ROOTS:
        path = root.joinpath(*name.split("."))
        if path.is_dir() or path.with_suffix(".py").is_file():
            return True
        module = path.parent.with_suffix(".py")
        if module.is_file() and re.search(
            rf"^(?:def|class) {path.name}\b|^{path.name}\b.*=", module.read_text(), re.MULTILINE
        ):
            return True
    return False


@cache
def classes() -> set[str]:
    """Return the names of all classes."""
    files = (file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    return {name for file in files for name in _DEFINED.findall(file.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_exists(page: Path) -> None:
    lost = {each for each in paths(page) if not any((root / each).exists() for root in ROOTS)}
    assert lost == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_module_exists(page: Path) -> None:
    kinds = (PLUGINS, NETWORK_PLUGINS, DATASET_PLUGINS, PARTITION_PLUGINS, SELECTOR_PLUGINS)
    groups = {TRACKER_PLUGINS.group, *(kind.group for kind in kinds)}
    assert {each for each in modules(page) - groups if not is_there(each)} == set()


@pytest.mark.parametrize("page", ABOUT_CODE, ids=lambda page: page.name)
def test_every_class_exists(page: Path) -> None:
    named = {match[0] for each in code(page) for match in _CLASS.finditer(each.split("(")[0])}
    camel = {each for each in named if each in each.title() or re.search("[a-z][A-Z]", each)}
    assert camel - classes() - FOREIGN == set()


def test_the_layers_are_those_that_are_enforced() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    shown = re.search(r"^```\n( edgefed\.cli .*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert shown is not None
    listed = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    layers = re.search(r"^layers = \[\n(.*?)^\]$", listed, re.MULTILINE | re.DOTALL)
    assert layers is not None
    enforced = [
        set(re.findall(r"\w+", line.strip().strip('",'))) for line in layers[1].splitlines()
    ]
    told: list[set[str]] = []
    for line in shown[1].splitlines():
        names = set(re.findall(r"edgefed\.(\w+)", line.partition("(")[0]))
        if line.startswith(" |"):
            told[-1] |= names
        else:
            told.append(names)
    assert told == enforced

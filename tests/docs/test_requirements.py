"""Requirements hold for every supported Python; ``make coverage`` counts by package."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests import resolve
from tests.coverage_by_package import by_package, package, table

tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")


def pins() -> Iterator[Requirement]:
    for line in (resolve.ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            yield Requirement(line)


def test_no_pin_depends_on_the_python_that_runs_pip() -> None:
    assert [str(pin) for pin in pins() if pin.marker is not None] == []


def test_every_pin_is_within_the_declared_bounds() -> None:
    versions = {pin.name: next(iter(pin.specifier)).version for pin in pins()}
    declared = [Requirement(text) for text in resolve.declared()]
    unfit = [each for each in declared if each.name in versions]
    assert len(unfit) > 10
    assert [each for each in unfit if versions[each.name] not in each.specifier] == []


def test_the_oldest_version_is_the_one_that_the_package_requires() -> None:
    project = tomllib.loads((resolve.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    supported = SpecifierSet(project["project"]["requires-python"])
    assert [f"3.{minor}" for minor in range(9, 14) if f"3.{minor}" in supported] == list(
        resolve.VERSIONS
    )


@pytest.mark.parametrize(("version", "needs"), [("3.10", True), ("3.11", False), ("3.13", False)])
def test_markers_are_evaluated_for_the_target(version: str, needs: bool) -> None:
    names = [resolve.name_of(each) for each in resolve.required(resolve.declared(), version)]
    assert ("tomli" in names) == needs
    assert "torch" in names


def test_a_requirement_that_only_the_target_has_is_found_missing() -> None:
    chosen: list[dict[str, Any]] = [
        {
            "metadata": {
                "name": "Some_Thing",
                "requires_dist": [
                    "there>=1",
                    "backport; python_version < '3.11'",
                    "fast; extra == 'fast'",
                    "slow; extra == 'slow'",
                    "torch",
                ],
            },
            "requested_extras": ["fast"],
        },
        {"metadata": {"name": "There"}},
    ]
    assert resolve.missing(chosen, "3.10") == {"backport", "fast"}
    assert resolve.missing(chosen, "3.12") == {"fast"}


def test_coverage_adds_the_files_of_a_package() -> None:
    files = {
        "edgefed/wire/blobs.py": {"summary": {"num_statements": 30, "missing_lines": 10}},
        "edgefed/wire/limits.py": {"summary": {"num_statements": 10, "missing_lines": 0}},
        "edgefed/learn/networks/mlp.py": {"summary": {"num_statements": 5, "missing_lines": 5}},
        "edgefed/version.py": {"summary": {"num_statements": 1, "missing_lines": 0}},
    }
    found = by_package(files)
    assert found == {"edgefed": (1, 0), "edgefed.learn": (5, 5), "edgefed.wire": (40, 10)}
    lines = [line.split() for line in table(found).splitlines()]
    assert lines[3] == ["edgefed.wire", "40", "10", "75.0", "%"]
    assert lines[-1] == ["total", "46", "15", "67.4", "%"]
    assert package("broker/acl.py") == "broker"

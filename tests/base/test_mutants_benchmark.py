"""Mutants: found again where their function went, and judged by the tests that run them."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest

from benchmarks.mutants.__main__ import (
    COUNT,
    SPARES,
    drawn,
    new_survivors,
    present,
    run,
    table,
)
from benchmarks.mutants.measurement import measure
from benchmarks.mutants.mutation import PACKAGES, Mutant, draw, find, read_tree

SOURCE = '''"""Small functions."""

import functools


def larger(a: int, b: int) -> int:
    """Return the larger one."""
    if a > b:
        return a
    return b


@functools.cache
def countdown(n: int) -> int:
    while n > 0:
        n -= 1
    return n


class Unused:
    def twice(self, value: int) -> int:
        return value * 2
'''
TESTS = """import pytest

from edgefed.wire.small import countdown, larger


@pytest.fixture(scope="module")
def at_end():
    return countdown(3)


def test_larger():
    assert larger(2, 1) == 2


def test_unrelated(at_end):
    pass


def test_countdown(at_end):
    assert at_end == 0
"""


EMPTY = "from benchmarks.mutants import running; running.LIBRARIES.clear()"
"""These tests need no library, and importing one takes seconds."""


def _tree(root: Path) -> Path:
    for name in ("edgefed", "edgefed/wire", "edgefed/trust", "tests"):
        (root / name).mkdir(parents=True)
        (root / name / "__init__.py").touch()
    (root / "edgefed/wire/small.py").write_text(SOURCE, encoding="utf-8")
    (root / "tests/test_small.py").write_text(TESTS, encoding="utf-8")
    return root


def _mutant(function: str, before: str, after: str, *place: str, node: str) -> Mutant:
    file = "edgefed/wire/small.py"
    return Mutant("wire", file, function, "", "", before, after, 0, place, node)


EQUIVALENT = _mutant("larger", "if a > b:\n    ...", "if a >= b:\n    ...", "test", node="a >= b")
OBVIOUS = _mutant("larger", "return a", "return 0", "value", node="0")
ENDLESS = _mutant("countdown", "n -= 1", "pass", node="pass")
WRONG_END = _mutant("countdown", "return n", "return 1", "value", node="1")
UNCOVERED = _mutant(
    "Unused.twice", "return value * 2", "return value / 2", "value", node="value / 2"
)


def test_a_seed_draws_the_same_mutants_again(tmp_path: Path) -> None:
    tree = _tree(tmp_path)
    assert draw(tree, 1, 9) == draw(tree, 1, 9)
    functions = [each.function for each in draw(tree, 1, 9)["wire"]]
    assert sorted(functions) == ["Unused.twice", "countdown", "larger"]


def test_a_mutant_is_found_after_its_file_was_renamed_and_its_function_moved(
    tmp_path: Path,
) -> None:
    tree = _tree(tmp_path)
    (tree / "edgefed/wire/small.py").rename(tree / "edgefed/trust/other.py")
    place = find(read_tree(tree), EQUIVALENT)
    assert place is not None
    assert place.file == "edgefed/trust/other.py"
    assert place.text == SOURCE.replace("a > b", "(a >= b)")
    assert list(place.lines) == [1 + SOURCE.splitlines().index("    if a > b:")]


def test_of_two_functions_of_a_name_the_unchanged_one_is_taken(tmp_path: Path) -> None:
    tree = _tree(tmp_path)
    (own,) = (each for each in draw(tree, 1, 9)["wire"] if each.function == "larger")
    (tree / "edgefed/wire/small.py").rename(tree / "edgefed/wire/there.py")
    changed = SOURCE.replace("def larger(a: int, b: int)", "def larger(a: int, b: int, c: int = 0)")
    for name in ("small", "zz"):
        (tree / f"edgefed/wire/{name}.py").write_text(changed, encoding="utf-8")
    place = find(read_tree(tree), own)
    assert place is not None
    assert place.file == "edgefed/wire/there.py"


def test_deleted_code_is_replaced_by_the_next_draw_and_named(tmp_path: Path) -> None:
    tree = _tree(tmp_path)
    gone = replace(OBVIOUS, function="smaller")
    found, lost = present(tree, [gone, OBVIOUS, ENDLESS], count=1)
    assert [mutant for mutant, _ in found] == [OBVIOUS]
    assert f"gone, replaced by the next draw: {gone.key}" in lost


def test_a_comparison_names_what_survives_only_now() -> None:
    first = [{"key": "a", "outcome": "survived"}, {"key": "b", "outcome": "killed"}]
    now = [{"key": "a", "outcome": "survived"}, {"key": "b", "outcome": "not covered"}]
    assert new_survivors(first, now) == ["b"]
    assert new_survivors(now, first) == []


def test_the_list_has_enough_of_each_package_and_other_functions_each() -> None:
    for package in PACKAGES:
        own = [each for each in drawn() if each.package == package]
        assert len(own) == COUNT + SPARES
        assert len({(each.file, each.function) for each in own}) == len(own)


@pytest.mark.slow
def test_each_mutant_is_judged_by_the_tests_that_run_its_lines(tmp_path: Path) -> None:
    tree = _tree(tmp_path / "tree")
    found, _ = present(tree, [EQUIVALENT, WRONG_END, UNCOVERED])
    measure(tree, [place.file for _, place in found], tmp_path / "map", ("-n", "1"))
    context = get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=exec, initargs=(EMPTY,)) as fresh:
        rows = fresh.submit(run, tmp_path, found).result()
        endless, _ = present(tree, [ENDLESS])
        (hung,) = fresh.submit(run, tmp_path, endless, 2.0).result()
    test = "tests/test_small.py::test_"
    assert [(row["outcome"], row["by"], row["covering"]) for row in rows] == [
        ("survived", "", 1),
        ("killed", f"{test}countdown", 2),
        ("not covered", "", 0),
    ]
    assert hung["outcome"] == "timeout"
    assert table([*rows, hung]).splitlines()[-1].split() == ["total", "1", "1", "1", "1"]
    assert (tree / "edgefed/wire/small.py").read_text(encoding="utf-8") == SOURCE

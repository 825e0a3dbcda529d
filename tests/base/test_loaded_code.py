"""A module that was imported and then edited is known to differ from its file."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgefed.errors import StorageError
from edgefed.files import source_digest
from edgefed.files.source_digest import module_digest
from tests.plugin_package import importable

CODE = '''
from functools import cache, cached_property, wraps

FACTOR, COUNT = 0.5, 0
STEP = 0.5
TURNS = 0
SIZES: tuple[int, ...] = (1, 2)
HALF = 1 / 2
try:
    FLAG = True
except ImportError:
    FLAG = False


def around(function):
    @wraps(function)
    def inner(*given):
        return function(*given) + 3
    return inner


def plainly(function):
    return lambda *given: function(*given)


@around
@plainly
def wrapped(value):
    return value + 4


@cache
def kept(value):
    return value + 5


def plain(value, by=6, *, more=7):
    global TURNS
    TURNS += 1
    return [item + 8 for item in (value, by, more)]


def plain_again(value):
    """Say it."""
    return value


def made(number):
    def plain_again(value):
        return number
    return plain_again


plain_again = made(1)


class Base:
    rate = 0.9
    turns = 0

    @classmethod
    def create(cls):
        cls.turns += 1
        return cls()

    @property
    def size(self):
        return 10

    @size.setter
    def size(self, value):
        self.last = 11

    @cached_property
    def area(self):
        return 12

    class Inner:
        def call(self):
            return 13


exec("def typed(): return 14")
SCOPE = globals()
SCOPE["plainest"] = lambda: 15
'''


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    """A module that was imported, and whose functions have run."""
    path = tmp_path / "an_own_module.py"
    path.write_text(CODE)
    with pytest.MonkeyPatch.context() as patch, importable(tmp_path, patch):
        module = importlib.import_module("an_own_module")
        module.plain(1)
        module.Base.create()
        yield path
        sys.modules.pop("an_own_module")


def digest() -> str:
    source_digest._digests.clear()
    return module_digest("an_own_module")


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("STEP = 0.5", "STEP = 0.05", "STEP"),
        ("(1, 2)", "(1, 3)", "SIZES"),
        ("HALF = 1 / 2", "HALF = 1 / 3", "HALF"),
        ("+ 3", "+ 33", "around"),
        ("+ 4", "+ 44", "wrapped"),
        ("+ 5", "+ value", "kept"),
        ("by=6", "by=66", "plain"),
        ("more=7", "more=77", "plain"),
        ("item + 8", "item * 8", "plain"),
        ("rate = 0.9", "rate = 9", "Base.rate"),
        ("return cls()", "return cls", "Base.create"),
        ("return 10", "return 100", "Base.size"),
        ("self.last = 11", "self.last = 111", "Base.size"),
        ("return 12", "return 122", "Base.area"),
        ("return 13", "return 133", "Base.Inner.call"),
    ],
)
def test_an_edit_is_refused_until_the_module_is_reloaded(
    file: Path, old: str, new: str, name: str
) -> None:
    assert CODE.count(old) == 1
    before = digest()
    file.write_text(CODE.replace(old, new) + "# another length\n")
    with pytest.raises(StorageError, match=rf"an_own_module\.py .* the {name} that") as caught:
        digest()
    assert caught.value.code == "source.changed"
    importlib.reload(sys.modules["an_own_module"])
    assert digest() != before


def test_remarks_lines_and_names_that_are_gone_are_no_change_of_the_code(file: Path) -> None:
    before = digest()
    text = "# a remark\n\n" + CODE.replace("class Base", "class Other").replace("def kept", "def k")
    file.write_text(text)
    assert digest() != before
    importlib.reload(sys.modules["an_own_module"])
    digest()


def test_a_module_beside_it_counts_too_and_one_of_another_loader_does_not(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = file.parent / "an_own_helper.py"
    helper.write_text("F = 1\n")
    importlib.import_module("an_own_helper")
    file.write_text(f"{CODE}import an_own_helper\n")
    digest()
    helper.write_text("F = 22\n")
    with pytest.raises(StorageError, match=r"an_own_helper\.py has changed"):
        digest()
    monkeypatch.setattr(sys.modules["an_own_helper"], "__loader__", object())
    digest()
    sys.modules.pop("an_own_helper")

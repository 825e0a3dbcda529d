"""Tables by name, collected from every module of ``edgefed.reproduce.papers`` with ``TABLES``."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import cast

from edgefed.config.nearest import did_you_mean, nearest_name
from edgefed.errors import UnknownNameError, UsageError
from edgefed.reproduce import papers
from edgefed.reproduce.table import SCALES, Scale, Table


@cache
def tables() -> dict[str, Table]:
    """Return every table by its name, paper by paper, in the paper's order."""
    found: dict[str, Table] = {}
    for module in pkgutil.iter_modules(papers.__path__):
        contents = importlib.import_module(f"{papers.__name__}.{module.name}")
        for table in cast(tuple[Table, ...], getattr(contents, "TABLES", ())):
            found[table.name] = table
    return dict(sorted(found.items(), key=lambda item: _place(item[1])))


def _place(table: Table) -> tuple[str, int]:
    """Return what sorts a paper's ``table2`` before ``table10``; others stay as they are listed."""
    number = table.name.removeprefix(f"{table.paper.key}-table")
    return table.paper.key, int(number) if number.isdecimal() else 0


def find(name: str) -> Table:
    """Return the table of a name.

    Raises:
        UnknownNameError: there is none.
    """
    known = tables()
    if name not in known:
        meant = did_you_mean(nearest_name(name, known)) or "."
        raise UnknownNameError(
            f"There is no table '{name}'{meant}", code="reproduce.unknown", hint="edgefed reproduce"
        )
    return known[name]


def scale_of(word: str) -> Scale:
    """Return the scale of a name.

    Raises:
        UsageError: there is none.
    """
    if word not in SCALES:
        meant = did_you_mean(nearest_name(word, SCALES)) or "."
        raise UsageError(
            f"There is no scale '{word}'{meant}",
            code="reproduce.scale",
            hint=f"--scale {' | '.join(SCALES)}",
        )
    return word

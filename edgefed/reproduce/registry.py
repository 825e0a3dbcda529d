"""Tables by name, from every file of ``edgefed/reproduce/papers``."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from edgefed.config.values.nearest import did_you_mean, nearest_name
from edgefed.errors import UnknownNameError, UsageError
from edgefed.reproduce.paper_tables import read_tables
from edgefed.reproduce.table import SCALES, PaperTable, Scale

PAPERS = Path(__file__).with_name("papers")


@cache
def tables() -> dict[str, PaperTable]:
    """Return every table by its name, paper by paper, in the order of the files.

    Raises:
        RecipeError: something in a file is wrong.
    """
    files = sorted(PAPERS.glob("*.toml"))
    return {table.name: table for path in files for table in read_tables(path)}


def find(name: str) -> PaperTable:
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

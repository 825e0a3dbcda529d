"""A published table: its rows, columns, numbers and claims, and three scales.

Each cell has a recipe, made of the column's set-up, the column's variation, the row's settings, and
the settings of that row in that column; later ones override earlier ones. All are flat mappings
from dotted recipe keys to values.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Scale = Literal["smoke", "small", "paper"]
SCALES: tuple[Scale, ...] = ("smoke", "small", "paper")

Relation = Literal["above", "equal", "not below"]

Metric = Literal[
    "accuracy",
    "best_accuracy",
    "equal_bytes_accuracy",
    "final_accuracy",
    "device_accuracy",
    "accuracy_participant",
    "accuracy_newcomer",
    "cluster_accuracy",
    "cluster_purity",
]

Settings = Mapping[str, Any]
"""Dotted recipe keys and their values."""

EACH = "*"
"""In a claim: every column that is run, one verdict for each."""


@dataclass(frozen=True)
class Paper:
    """Where a table is from.

    Attributes:
        key: a short name, with which the tables' names begin.
        where: conference or journal and year, or arXiv number.
    """

    key: str
    authors: str
    title: str
    where: str


@dataclass(frozen=True)
class PaperRow:
    """A compared method.

    Attributes:
        label: the paper's name, unique in a table.
        settings: of the row, over the column's set-up.
    """

    label: str
    settings: Settings


@dataclass(frozen=True)
class PaperScore:
    """The score of a run.

    Attributes:
        metric: ``accuracy`` on the coordinator's test samples, or ``device_accuracy`` on those that
            the devices hold out, or only those that never train (``accuracy_newcomer``); or how
            well the devices are clustered. ``best_accuracy`` is the highest of all rounds on the
            coordinator's samples, ``equal_bytes_accuracy`` the last within the bytes that the first
            row moves in all its rounds under the same seed. ``final_accuracy`` is on the
            coordinator's samples when the run has ended, including gates collected after its last
            round.
        last: the mean of so many last tests.
    """

    metric: Metric = "accuracy"
    last: int = 1


@dataclass(frozen=True)
class PaperColumn:
    """A data set, or a setting that is varied.

    Attributes:
        label: its name, unique at a scale.
        of: the paper's column that it is, or represents; published numbers and claims name it.
        setup: the recipe of all rows.
        varies: its difference from the table's other columns.
        rows: settings of single rows here, by label.
        target: the accuracy of which the rounds are counted; None for none.
        score: how a run is scored.
        optional: whether it is left out if its data is missing.
    """

    label: str
    of: str
    setup: Settings
    varies: Settings = field(default_factory=dict)
    rows: Mapping[str, Settings] = field(default_factory=dict)
    target: float | None = None
    score: PaperScore = PaperScore()
    optional: bool = False


@dataclass(frozen=True)
class Scaled:
    """A table at one scale.

    Attributes:
        takes: how long, in words.
        left_out: labels of rows, or columns of the paper, that are not run, and why.
        exact: the columns are set up as published, so that numbers may be compared.
    """

    columns: tuple[PaperColumn, ...]
    seeds: tuple[int, ...]
    takes: str
    left_out: Mapping[str, str] = field(default_factory=dict)
    exact: bool = False


@dataclass(frozen=True)
class Published:
    """A published number.

    Attributes:
        column: as the paper has it; see ``PaperColumn.of``.
        value: accuracy in percent.
        source: from whom we know it.
        deviation: over the published runs, in points; None if unknown.
    """

    row: str
    column: str
    value: float
    source: str
    deviation: float | None = None


@dataclass(frozen=True)
class Term:
    """A cell's accuracy, times ``weight``; ``column`` may be `EACH`."""

    weight: float
    row: str
    column: str = EACH


@dataclass(frozen=True)
class Claim:
    """Something that the paper says of its numbers: how a sum of cells compares with 0.

    Attributes:
        text: in words.
        terms: the sum.
        relation: it should be above 0, about 0, or not below 0.
    """

    text: str
    terms: tuple[Term, ...]
    relation: Relation = "above"


@dataclass(frozen=True)
class PaperTable:
    """One published table.

    Attributes:
        name: the paper's key and name of the table.
        rows: in the paper's order.
        known: the known published numbers, with their source.
        notes: where our set-up is a reading of the paper, or differs from it.
    """

    name: str
    title: str
    paper: Paper
    rows: tuple[PaperRow, ...]
    scales: Mapping[Scale, Scaled]
    known: str
    published: tuple[Published, ...] = ()
    claims: tuple[Claim, ...] = ()
    notes: tuple[str, ...] = ()

    def number(self, row: str, column: str) -> Published | None:
        """Return the paper's number for a row in one of its columns, if known."""
        numbers = (entry for entry in self.published if (entry.row, entry.column) == (row, column))
        return next(numbers, None)


RELATIONS: Mapping[str, Relation] = {">": "above", "≈": "equal", "≥": "not below"}
_ORDER = re.compile(r"(?P<left>.+) (?P<sign>[>≈≥]) (?P<right>.+)")
_LOSES = re.compile(r"(?P<row>.+) loses less than (?P<other>.+) from (?P<easy>.+) to (?P<hard>.+)")


def read_claim(claim: str, rows: Collection[str]) -> Claim:
    """Return a claim that is written in one line.

    It is one of ``ROW > ROW``, about each column that is run, or about one with ``| COLUMN`` after
    it; ``ROW: COLUMN > COLUMN``; ``ROW at COLUMN > ROW at COLUMN``; and ``ROW loses less than ROW
    from COLUMN to COLUMN``. ``≈`` (hardly differ) and ``≥`` (not below) may replace ``>``.

    Args:
        claim: the line; without the column it is also the claim in words.
        rows: labels of the table's rows.

    Raises:
        ValueError: it is none of these.
    """
    words, _, column = claim.partition(" | ")
    if match := _LOSES.fullmatch(words):
        row, other, easy, hard = match.groups()
        first, second = (
            (Term(1, row, hard), Term(-1, row, easy)),
            (Term(-1, other, hard), Term(1, other, easy)),
        )
        return Claim(words, (*first, *second))
    if not (match := _ORDER.fullmatch(words)):
        raise ValueError(f"'{claim}' is no claim")
    left, right = match["left"], match["right"]
    if left not in rows and ": " in left:
        row, _, left_column = left.partition(": ")
        left, right = f"{row} at {left_column}", f"{row} at {right}"
    terms = []
    for weight, side in ((1, left), (-1, right)):
        row, at, own = side.rpartition(" at ")
        one = side in rows or not at
        terms.append(Term(weight, side, column or EACH) if one else Term(weight, row, own))
    return Claim(words, tuple(terms), RELATIONS[match["sign"]])

"""The tables of the papers' files: extended set-ups and rows, and the columns at each scale.

A table is found by its name among every file of ``edgefed/reproduce/papers``. The files name the
functions here for settings that follow from the set-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from string import Formatter
from typing import Any, TypeVar

from edgefed.config.values.layers import ValueLayer, merge
from edgefed.config.values.nearest import did_you_mean, nearest_name
from edgefed.config.values.toml_positions import KeyPath
from edgefed.errors import UnknownNameError, UsageError
from edgefed.reproduce.paper_file import (
    Amounts,
    Axis,
    ColumnKeys,
    Derived,
    Extending,
    Read,
    RecipeKeys,
    RowKeys,
    SetupKeys,
    TableKeys,
)
from edgefed.reproduce.table import (
    EACH,
    SCALES,
    Claim,
    Paper,
    PaperColumn,
    PaperRow,
    PaperScore,
    PaperTable,
    Published,
    Scale,
    Scaled,
    Settings,
    read_claim,
)

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


def output_epochs(setup: Settings, amounts: Amounts) -> Settings:
    """Return how long the output layer of a matched model is trained."""
    epochs = setup.get("training.epochs", amounts.epochs)
    return {"algorithm.last_epochs": amounts.output * epochs}


def trained_once(_setup: Settings, amounts: Amounts) -> Settings:
    """Return how long devices train that train once."""
    return {"training.epochs": amounts.alone}


def pooled(setup: Settings, amounts: Amounts) -> Settings:
    """Return the settings with the samples of all devices on one."""
    parts = {"data.parts_per_device": setup["simulation.devices"]}
    one_a_round = {"training.epochs": 1, "rounds.count": amounts.pooled}
    return {**parts, **(one_a_round if amounts.pooled else {})}


DERIVED: Mapping[Derived, Callable[[Settings, Amounts], Settings]] = {
    "output_epochs": output_epochs,
    "trained_once": trained_once,
    "pooled": pooled,
}


ExtendingT = TypeVar("ExtendingT", bound=Extending)


def read_tables(path: Path) -> tuple[PaperTable, ...]:
    """Return the tables of a paper's file, in its order.

    Raises:
        RecipeError: the file cannot be read, or something in it is wrong; problems have lines.
    """
    read = Read(path)
    file = read.file
    setups = {f"{kind}.{scale}": e for kind, own in file.setups.items() for scale, e in own.items()}
    made = _Tables(
        read,
        _extended(read, {**file.bases, **setups}, "setups"),
        _extended(read, file.rows, "rows"),
    )
    return tuple(made.table(number, keys) for number, keys in enumerate(file.tables))


def _extended(read: Read, known: Mapping[str, ExtendingT], place: str) -> dict[str, ExtendingT]:
    """Return set-ups or rows with what they extend, which stands above them."""
    values: dict[str, Mapping[str, Any]] = {}
    for name, entry in known.items():
        layers = [ValueLayer(entry.model_dump(exclude={"extends"}, exclude_unset=True))]
        for other in reversed(entry.extends):
            read.check("earlier entry", other, values, (place, *name.split("."), "extends"))
            layers.append(ValueLayer(values[other]))
        values[name] = merge(layers).values
    return {name: type(entry).model_validate(values[name]) for name, entry in known.items()}


@dataclass(frozen=True)
class _Point:
    """A value on an axis.

    Attributes:
        shown, of: the value in the column's label, and in the paper's.
        settings: that it means.
        rows: labels of the only rows that have them; none for all.
    """

    shown: str
    of: str
    settings: Settings
    rows: tuple[str, ...]


@dataclass(frozen=True)
class _Tables:
    """Makes the tables of a file.

    Attributes:
        setups: by ``KIND.SCALE``.
    """

    read: Read
    setups: Mapping[str, SetupKeys]
    rows: Mapping[str, RowKeys]

    def table(self, number: int, keys: TableKeys) -> PaperTable:
        """Return a table.

        Raises:
            RecipeError: it names a row, a column or a set-up that there is not.
        """
        file, place = self.read.file, ("tables", number)
        for key in keys.rows:
            self.read.check("row", key, self.rows, (*place, "rows"))
        rows = {self.rows[key].label or key: self.rows[key] for key in keys.rows}
        columns = {scale: tuple(self._columns(keys, rows, scale, place)) for scale in SCALES}
        published = tuple(dict.fromkeys(column.of for column in columns["paper"]))
        names = _Names(self.read, tuple(rows), published)
        takes = {**file.takes, **keys.takes}
        absent = keys.absent or file.absent
        scales = {
            scale: Scaled(
                made,
                keys.seeds or file.seeds,
                takes[scale],
                {
                    **keys.left_out,
                    **keys.left_out_at.get(scale, {}),
                    **{of: absent for of in published if absent and of not in {c.of for c in made}},
                },
                exact=(file.exact if keys.exact is None else keys.exact) and scale == "paper",
            )
            for scale, made in columns.items()
        }
        claims = [
            (claim, "") if isinstance(claim, str) else (claim.claim, claim.text)
            for claim in keys.claims
        ]
        return PaperTable(
            keys.name,
            keys.title,
            Paper(file.key, file.authors, file.title, file.where),
            tuple(PaperRow(label, row.settings()) for label, row in rows.items()),
            scales,
            keys.known or file.known,
            tuple(names.numbers(keys, place)),
            tuple(names.claim(*claim, (*place, "claims")) for claim in claims),
            keys.notes,
        )

    def _columns(
        self, keys: TableKeys, rows: Mapping[str, RowKeys], scale: Scale, place: KeyPath
    ) -> Iterator[PaperColumn]:
        for number, column in enumerate(keys.columns):
            path = (*place, "columns", number)
            kinds = self.read.file.setups
            self.read.check("kind of set-ups", column.setup, kinds, (*path, "setup"))
            for name in {name for axis in column.axes.values() for name in axis.rows}:
                self.read.check("row", name, rows, (*path, "axes"))
            for name in column.rows:
                self.read.check("row", name, rows, (*path, "rows", name))
            for _, field, _, _ in Formatter().parse(column.of + column.label):
                known = ("setup", "of", *column.axes)
                self.read.check("axis", field or "of", known, (*path, "of"))
            setup = self.setups.get(f"{column.setup}.{scale}")
            if setup is not None:
                axes = [_points(axis, scale) for axis in column.axes.values()]
                for points in product(*axes):
                    yield _column(column, setup, dict(zip(column.axes, points, strict=True)), rows)


def _points(axis: Axis, scale: Scale) -> Iterator[_Point]:
    values = getattr(axis, scale) or axis.values
    pairs = (
        values.items() if isinstance(values, Mapping) else [(str(value), value) for value in values]
    )
    for of, value in pairs:
        if isinstance(value, RecipeKeys):
            yield _Point(of, of, value.settings(), axis.rows)
        else:
            yield _Point(str(value), of, {axis.key: value}, axis.rows)


def _column(
    keys: ColumnKeys, setup: SetupKeys, points: Mapping[str, _Point], rows: Mapping[str, RowKeys]
) -> PaperColumn:
    """Return one column; what rows have of their own comes from the set-up, then the column."""
    general = [point.settings for point in points.values() if not point.rows]
    varies = {key: value for part in (*general, keys.settings()) for key, value in part.items()}
    settings = {**setup.settings(), **varies}
    own: dict[str, Settings] = {}
    for label, row in rows.items():
        derived = [DERIVED[name](settings, setup.amounts) for name in row.derived]
        method = row.settings()["algorithm.name"]
        by_method = setup.methods[method].settings() if method in setup.methods else {}
        parts = [
            *derived,
            {key: value for key, value in by_method.items() if key not in varies},
            *(entry.settings() for name, entry in setup.rows.items() if name == label),
            *(point.settings for point in points.values() if label in point.rows),
            *(entry.settings() for name, entry in keys.methods.items() if name == method),
            *(entry.settings() for name, entry in keys.rows.items() if name == label),
        ]
        if merged := {key: value for part in parts for key, value in part.items()}:
            own[label] = merged
    shown = {axis: point.shown for axis, point in points.items()}
    of = keys.of.format(**{axis: point.of for axis, point in points.items()})
    label = keys.label or ("{setup}, " + keys.of if keys.of else "{setup}")
    return PaperColumn(
        label.format(setup=setup.label, of=of, **shown),
        of or setup.of or setup.label,
        setup.settings(),
        varies,
        own,
        None if keys.untargeted else setup.target,
        PaperScore(keys.score or setup.score, setup.last),
        keys.optional,
    )


@dataclass(frozen=True)
class _Names:
    """Reads claims and numbers about a table's rows and the paper's columns."""

    read: Read
    rows: Sequence[str]
    columns: Sequence[str]

    def numbers(self, keys: TableKeys, place: KeyPath) -> Iterator[Published]:
        """Yield the published numbers."""
        for number, block in enumerate(keys.published):
            path = (*place, "published", number)
            for name in block.columns:
                self.read.check("column", name, self.columns, (*path, "columns"))
            for key in ("values", "deviations"):
                for label, values in getattr(block, key).items():
                    self.read.check("row", label, self.rows, (*path, key, label))
                    if len(values) != len(block.columns):
                        text = f"must have {len(block.columns)} numbers, has {len(values)}"
                        raise self.read.wrong((*path, key, label), text)
            for label, values in block.values.items():
                deviations = block.deviations.get(label, (None,) * len(values))
                for column, value, noise in zip(block.columns, values, deviations, strict=True):
                    yield Published(label, column, value, block.source, noise)

    def claim(self, claim: str, text: str, path: KeyPath) -> Claim:
        """Return a claim; ``text`` replaces its words unless it is empty."""
        try:
            parsed = read_claim(claim, self.rows)
        except ValueError as error:
            raise self.read.wrong(path, str(error)) from None
        for term in parsed.terms:
            self.read.check("row", term.row, self.rows, path)
            self.read.check("column", term.column, (*self.columns, EACH), path)
        return replace(parsed, text=text) if text else parsed

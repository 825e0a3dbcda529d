"""Building blocks of the FedMix tables: the paper, its rows, and columns that vary a setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from edgefed.reproduce.papers.fedmix_setups import SETUPS, Kind, Setup, column
from edgefed.reproduce.table import (
    SCALES,
    Claim,
    Column,
    Paper,
    Published,
    Row,
    Scale,
    Scaled,
    Table,
)

FEDMIX = Paper(
    "fedmix",
    "Yoon, Shin, Hwang, Yang",
    "FedMix: Approximation of Mixup under Mean Augmented Federated Learning",
    "ICLR 2021",
)
ORDER = "the numbers are lost; what the text says of their order is known"

SEEDS = (11, 12, 13)
"""Not 1 and 2, under which the small set-ups were chosen."""

TAKES: Mapping[Scale, str] = {
    "smoke": "about a second a run",
    "small": "some ten seconds a run on two cores",
    "paper": "as published; for a GPU, an hour a run and more",
}

MU = 0.01
"""FedProx's mu is lost; this is our reading."""


def row(label: str, name: str, **more: Any) -> Row:
    """Return a row: its label, its algorithm, and the algorithm's settings."""
    return Row(label, {f"algorithm.{key}": value for key, value in {"name": name, **more}.items()})


GLOBAL = row("Global Mixup", "globalmix", mixup_alpha=1.0)
FEDAVG = row("FedAvg", "fedavg")
FEDPROX = row("FedProx", "fedprox", mu=MU)
LOCALMIX = row("LocalMix", "localmix", mixup_alpha=1.0)
NAIVEMIX = row("NaiveMix", "naivemix")
FEDMIX_ROW = row("FedMix", "fedmix")
ALONE = (FEDAVG, FEDPROX, LOCALMIX, NAIVEMIX, FEDMIX_ROW)
WITH_PROX = tuple(
    row(f"FedProx + {label}", name, mu=MU, **more)
    for label, name, more in (
        ("LocalMix", "localmix", {"mixup_alpha": 1.0}),
        ("NaiveMix", "naivemix", {}),
        ("FedMix", "fedmix", {}),
    )
)

Columns = Callable[[Scale, Sequence[Row]], tuple[Column, ...]]
"""A table's columns at a scale."""


def sets(*kinds: Kind) -> Columns:
    """Return a column for each of the paper's data sets, or what stands for it."""

    def columns(scale: Scale, rows: Sequence[Row]) -> tuple[Column, ...]:
        return tuple(column(SETUPS[scale][kind], rows) for kind in kinds)

    return columns


def varied(
    word: str,
    keys: Callable[[Any], Mapping[str, Any]] | str,
    paper: Sequence[Any],
    *,
    kind: Kind = "cifar10",
    change: Callable[[Setup, Scale], Setup] = lambda setup, scale: setup,
    **others: Sequence[Any],
) -> Columns:
    """Return a column for each value of a setting, in one set-up.

    Args:
        word: what is varied, as the paper's column has it.
        keys: the recipe key, or the keys that a value makes.
        paper: the paper's values.
        kind: the set-up.
        change: what the table has changed in it.
        others: as many values for ``small`` and ``smoke``, where the paper's do not suit.
    """
    values = {"paper": paper, **others}

    def columns(scale: Scale, rows: Sequence[Row]) -> tuple[Column, ...]:
        setup = change(SETUPS[scale][kind], scale)
        made = []
        for published, value in zip(paper, values.get(scale, paper), strict=True):
            varies = {keys: value} if isinstance(keys, str) else keys(value)
            label = f"{setup.label}, {word} = {value}"
            of = f"{word} = {published}"
            made.append(column(setup, rows, label=label, of=of, varies=varies))
        return tuple(made)

    return columns


def table(
    number: int,
    title: str,
    rows: Sequence[Row],
    columns: Columns,
    claims: Sequence[Claim],
    *,
    published: Sequence[Published] = (),
    known: str = ORDER,
    notes: Sequence[str] = (),
    left_out: Mapping[str, str] | None = None,
) -> Table:
    """Return one table of the paper."""
    return Table(
        name=f"fedmix-table{number}",
        title=title,
        paper=FEDMIX,
        rows=tuple(rows),
        scales={
            scale: Scaled(
                columns(scale, rows),
                SEEDS,
                TAKES[scale],
                {**(left_out or {}), **_absent(columns, scale, rows)},
                exact=scale == "paper",
            )
            for scale in SCALES
        },
        known=known,
        published=tuple(published),
        claims=tuple(claims),
        notes=tuple(notes),
    )


def _absent(columns: Columns, scale: Scale, rows: Sequence[Row]) -> Mapping[str, str]:
    """Return the paper's columns that nothing stands for at a scale."""
    here = {each.of for each in columns(scale, rows)}
    wanted = [each.of for each in columns("paper", rows)]
    return {of: "nothing small enough stands for it" for of in wanted if of not in here}

"""The tables of a mixture of experts: how they are made, and their values as JSON has them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from edgefed.events.base.method_tables import (
    DEVICE,
    Cell,
    Column,
    MethodTable,
    Row,
    TableView,
    method_table,
    table_named,
)
from edgefed.terminal.units import counted

EXPERTS, SHARES, MIXTURES = "experts", "q(z|y)", "q(z|s)"
"""Names of the tables: a row for each expert, for each label or value of a column, and for each
device."""

OF_DEVICE = "device"
"""Condition of shares that depend on the device, so that there is no table of labels."""

DEAD, COLLAPSED = "dead", "collapsed"
"""States of experts: without load; the one that has all of it."""

ENTROPY = "entropy"
"""Series beside the load of each expert."""

MAX_MIXTURES = 2000
"""Devices whose mixtures are in JSON; the first by name."""

ALONE = 0.9
"""Share of one expert from which a device uses it alone."""

MOST_NAMED = 6
"""Experts that a sentence names."""

_DIGITS = 4
"""Decimal places of the numbers in these tables."""

Mixture = tuple[str, tuple[Any, ...]]
"""Device and row of ``MIXTURES``."""


def name_of_expert(expert: int) -> str:
    """Return the name of an expert."""
    return f"e{expert}"


def mixture_row(
    device: str, samples: int, number: int, shares: Sequence[float], kept: Sequence[int]
) -> Mixture:
    """Return a device's row: its samples, the round of its answer, shares, and experts it keeps."""
    names = "all" if len(kept) == len(shares) else " ".join(map(name_of_expert, kept))
    return device, (samples, number, *map(_rounded, shares), names)


def mixture_of(row: Row) -> dict[str, Any]:
    """Return the values of a device's row."""
    samples, number, *shares, kept = row.cells
    every = range(len(shares))
    named = every if kept == "all" else [int(name[1:]) for name in str(kept).split()]
    return {
        "device": row.key,
        "samples": samples,
        "round": number,
        "shares": shares,
        "kept": list(named),
    }


def mixture_table(experts: int, mixtures: Iterable[Mixture]) -> MethodTable:
    """Return the table of the devices' mixtures."""
    return method_table(
        MIXTURES,
        [
            Column(name="samples", format="d"),
            Column(name="round", format="d"),
            *_share_columns(experts),
            Column(name="kept"),
        ],
        mixtures,
        key=DEVICE,
    )


def share_table(
    condition: str, experts: int, rows: Iterable[tuple[str, Sequence[float]]]
) -> MethodTable:
    """Return the shares of the experts for each label, or for each value of a column."""
    cells = ((name, list(map(_rounded, shares))) for name, shares in rows)
    return method_table(SHARES, _share_columns(experts), cells, key=condition)


def load_table(
    experts: int,
    number: int,
    load: Sequence[float],
    entropy: float | None,
    states: Mapping[int, str],
    divergence: Sequence[float | None],
    mixtures: Collection[Sequence[Cell]],
) -> MethodTable:
    """Return the table of the experts.

    Args:
        experts: their number.
        number: the round.
        load: for each its share of the samples; empty before the first answer.
        entropy: of the load in nats; None before.
        states: ``DEAD`` or ``COLLAPSED`` of some, by number.
        divergence: of the gradients of each; empty where it is not measured.
        mixtures: cells of the rows of devices.
    """
    users = users_of(experts, mixtures)
    loads: list[float | None] = [*map(_rounded, load)] or [None] * experts
    measured: list[Any] = [[value if value is None else _rounded(value)] for value in divergence]
    rows = [
        (
            name_of_expert(k),
            (loads[k], users[k], *(measured[k] if measured else ()), states.get(k, "")),
        )
        for k in range(experts)
    ]
    return method_table(
        EXPERTS,
        [
            Column(name="load", format=".1%", show="share"),
            Column(name="devices", format="d"),
            *([Column(name="divergence", format=".4g")] if measured else []),
            Column(name="state"),
        ],
        rows,
        key="expert",
        series={
            **({name_of_expert(k): loads[k] for k in range(experts)} if load else {}),
            ENTROPY: None if entropy is None else _rounded(entropy),
        },
        round=number,
        verdict=expert_verdict(experts, states, mixtures, entropy),
        warning=problem_in_words(states),
    )


def expert_verdict(
    experts: int,
    states: Mapping[int, str],
    mixtures: Collection[Sequence[Cell]],
    entropy: float | None,
) -> str:
    """Return whether devices mix experts or use one each, and which experts nobody uses."""
    if entropy is None:
        return f"no device has answered yet; {counted(experts, 'expert')}"
    numbers = f"entropy of the load {entropy:.2f} of {math.log(experts):.2f}"
    return "; ".join(filter(None, (_use(mixtures), _unused(experts, states), numbers)))


def _use(mixtures: Collection[Sequence[Cell]]) -> str:
    """Return how many devices use one expert alone; empty where no mixture is known."""
    one = sum(max(_shares(cells), default=0.0) >= ALONE for cells in mixtures)
    if not mixtures:
        return ""
    if one == len(mixtures):
        return "each device uses one expert"
    if not one:
        return "devices mix experts"
    return f"{one} of {counted(len(mixtures), 'device')} use one expert each"


def _unused(experts: int, states: Mapping[int, str]) -> str:
    """Return which experts nobody uses."""
    collapsed = [name_of_expert(k) for k, state in states.items() if state == COLLAPSED]
    if collapsed:
        return f"all use {collapsed[0]}, which leaves {counted(experts - 1, 'expert')} unused"
    dead = [name_of_expert(k) for k, state in states.items() if state == DEAD]
    if not dead:
        return f"all {experts} experts are used" if experts > 1 else "there is one expert"
    named = " ".join([*dead[:MOST_NAMED], *(["…"] if len(dead) > MOST_NAMED else [])])
    return f"expert {named} is unused" if len(dead) == 1 else f"experts {named} are unused"


def _shares(cells: Sequence[Cell]) -> list[float]:
    """Return the shares in the row of a device."""
    return [float(share or 0) for share in cells[2:-1]]


def users_of(experts: int, mixtures: Iterable[Sequence[Cell]]) -> list[int]:
    """Return for each expert how many devices have their largest share in it.

    Args:
        experts: their number.
        mixtures: cells of the rows of devices.
    """
    users = [0] * experts
    for cells in mixtures:
        if shares := _shares(cells):
            users[shares.index(max(shares))] += 1
    return users


def problem_in_words(states: Mapping[int, str]) -> str:
    """Return the problem of the experts, or nothing: one has all the load, or some have none.

    A collapsed mixture leaves all other experts without load, so that they are not named too.
    """
    collapsed = [expert for expert, state in states.items() if state == COLLAPSED]
    if collapsed:
        return f"collapsed on {name_of_expert(collapsed[0])}"
    dead = [expert for expert, state in states.items() if state == DEAD]
    named = " ".join(map(name_of_expert, dead[:MOST_NAMED]))
    return f"dead: {named}{' …' if len(dead) > MOST_NAMED else ''}" if dead else ""


def experts_json(views: Sequence[TableView], row_name: Mapping[str, str]) -> dict[str, Any]:
    """Return the experts of a run from its tables; ``experts`` is 0 for a run without any.

    Args:
        views: the run's tables.
        row_name: returns the name of a row of the table from its key.
    """
    view = table_named(views, EXPERTS)
    if view is None:
        return {"experts": 0}
    rows, count = view.table.rows, len(view.table.rows)
    names = [row.key for row in rows]
    load = [row.cells[0] for row in rows]
    has_divergence = len(view.table.columns) == 4
    table, mixtures = table_named(views, SHARES), table_named(views, MIXTURES)
    mixture_rows = [] if mixtures is None else [mixture_of(row) for row in mixtures.table.rows]
    return {
        "experts": count,
        "round": view.round,
        "condition": table.table.key if table is not None else OF_DEVICE,
        "load": [] if None in load else load,
        "entropy": view.table.series.get(ENTROPY),
        "dead": [number for number, row in enumerate(rows) if row.cells[-1] == DEAD],
        "collapsed": any(row.cells[-1] == COLLAPSED for row in rows),
        "verdict": view.table.verdict,
        "divergence": [row.cells[2] for row in rows] if has_divergence else [],
        "devices": [row.cells[1] for row in rows],
        "table": [
            {"value": row_name.get(row.key, row.key), "shares": list(row.cells)}
            for row in (table.table.rows if table is not None else ())
        ],
        "table_rows": len(table.table.rows) + table.left_out if table is not None else 0,
        "mixtures": mixture_rows[:MAX_MIXTURES],
        "more_mixtures": len(mixture_rows[MAX_MIXTURES:]) + (mixtures.left_out if mixtures else 0),
        "history": [
            {
                "round": point.round,
                "load": [point.values[name] for name in names if name in point.values],
                "entropy": point.values.get(ENTROPY),
            }
            for point in view.history
        ],
    }


def _share_columns(experts: int) -> list[Column]:
    names = map(name_of_expert, range(experts))
    return [Column(name=name, format=".2f", show="share") for name in names]


def _rounded(value: float) -> float:
    """Return a number rounded; one that is not finite is shown as 0."""
    return round(float(value), _DIGITS) if math.isfinite(value) else 0.0

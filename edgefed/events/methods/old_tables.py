"""Events of earlier versions about experts, matched layers and label bounties, as table changes.

Earlier versions wrote ``experts``, ``matching`` and ``labels`` events; this one writes ``table``
events only. Recordings and event logs of earlier versions have the former.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from edgefed.events.base.bounty_tables import (
    BOUNTIES,
    BountyView,
    BudgetView,
    bounty_key,
    bounty_table,
    budget_table,
    totals_in_words,
)
from edgefed.events.base.method_tables import (
    MAX_NAME,
    MAX_ROWS,
    MethodTable,
    MethodTables,
    TableChange,
    TableView,
)
from edgefed.events.methods import expert_tables as experts
from edgefed.events.methods.matching_table import LAYERS, layer_row, layer_table
from edgefed.terminal.printable import printable

Fields = Mapping[str, Any]


def changes_of(kind: str, fields: Fields, tables: MethodTables) -> tuple[TableChange, ...]:
    """Return the changes that an event makes in a run's tables; empty for events of other kinds.

    Args:
        kind: of the event.
        fields: of the event.
        tables: before the event; they stay as they are.

    Raises:
        KeyError, TypeError, ValueError: a field is missing or wrong.
    """
    if kind == "table":
        return (TableChange.of(fields),)
    read = _READERS.get(kind)
    return tuple(read(fields, tables)) if read is not None else ()


def _change(
    table: MethodTable,
    number: int = 0,
    removed: Iterable[str] = (),
    *,
    anew: bool = False,
    left_out: int = 0,
) -> TableChange:
    shown = table.model_copy(update={"round": None})
    view = TableView(table=shown, round=number, left_out=left_out)
    return TableChange(table.name, view, tuple(removed), anew)


def _matching(fields: Fields, tables: MethodTables) -> Iterable[TableChange]:
    known = tables.view(LAYERS)
    layers: list[dict[str, Any]] = [
        {
            "layer": row.key,
            **dict(zip(("local", "atoms", "growth", "holders", "objective"), row.cells)),  # noqa: B905
        }
        for row in (known.table.rows if known is not None else ())
    ]
    for number, layer in fields["layers"]:
        place = int(number)
        if not 0 <= place < MAX_ROWS:
            raise ValueError(f"there is no layer {number}")
        layers += [{"layer": f"#{index + 1}"} for index in range(len(layers), place + 1)]
        name = printable(str(layer.get("layer") or ""))[:MAX_NAME]
        others = {other["layer"] for other in layers if other is not layers[place]}
        layers[place] = {**layer, "layer": name if name and name not in others else f"#{place + 1}"}
    number, matched = int(fields.get("round") or 0), int(fields.get("matched") or 0)
    rows = [
        layer_row(
            str(layer["layer"]),
            int(layer.get("local") or 0),
            int(layer.get("atoms") or 0),
            float(layer.get("holders") or 0.0),
            layer.get("objective"),
            number if place < matched else number - 1,
        )
        for place, layer in enumerate(layers)
    ]
    table = layer_table(rows, number, int(fields.get("devices") or 0), fields.get("growth"))
    left_out = max(0, int(fields["total"]) - len(rows))
    yield _change(table, number, anew=True, left_out=left_out)


def _experts(fields: Fields, tables: MethodTables) -> Iterable[TableChange]:
    count, number = int(fields["experts"]), int(fields.get("round") or 0)
    mixtures = dict(
        experts.mixture_row(
            field["device"],
            int(field.get("samples") or 0),
            int(field.get("round") or 0),
            field.get("shares") or (),
            field.get("kept") or (),
        )
        for field in fields["mixtures"]
    )
    before = tables.view(experts.MIXTURES)
    known = {row.key: row.cells for row in (before.table.rows if before is not None else ())}
    load = [float(share) for share in fields.get("load") or ()]
    states = dict.fromkeys(map(int, fields.get("dead") or ()), experts.DEAD)
    if fields.get("collapsed") and load:
        states[load.index(max(load))] = experts.COLLAPSED
    measured = list(fields.get("divergence") or ())
    divergence = [*measured, *[None] * (count - len(measured))] if measured else []
    yield _change(
        experts.load_table(
            count,
            number,
            load,
            fields.get("entropy"),
            states,
            divergence,
            {**known, **mixtures}.values(),
        ),
        number,
        anew=True,
    )
    condition = str(fields.get("condition") or "label")
    if condition != experts.OF_DEVICE:
        rows = {str(int(row)): list(map(float, shares)) for row, shares in fields["rows"]}
        if any(not key.isdecimal() for key in rows):
            raise ValueError("a table has no row of a negative number")
        shares = tables.view(experts.SHARES)
        keys = {row.key for row in (shares.table.rows if shares is not None else ())}
        total = len(keys | rows.keys())
        left_out = max(0, int(fields.get("labels") or 0) - total)
        yield _change(
            experts.share_table(condition, count, rows.items()), number, left_out=left_out
        )
    yield _change(experts.mixture_table(count, mixtures.items()), number)


def _labels(fields: Fields, tables: MethodTables) -> Iterable[TableChange]:
    views = map(BountyView.model_validate, fields["bounties"])
    bounties = {(bounty.device, bounty.label): bounty for bounty in views}
    removed = [bounty_key(str(device), int(label)) for device, label in fields["removed"]]
    budgets = {row["device"]: BudgetView.model_validate(row) for row in fields["budgets"]}
    if bounties or removed:
        before = tables.head(BOUNTIES)
        verdict = before.table.verdict if before is not None else ""
        if "totals" in fields:
            verdict = totals_in_words(fields["totals"])
        yield _change(bounty_table(bounties.values(), verdict=verdict), removed=removed)
    if budgets:
        yield _change(budget_table(budgets.values()))


_READERS: dict[str, Callable[[Fields, MethodTables], Iterable[TableChange]]] = {
    "matching": _matching,
    "experts": _experts,
    "labels": _labels,
}

KINDS = ("table", *_READERS)
"""Kinds of events that change tables."""

"""The table of matched layers: how it is made, and its values as JSON has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from edgefed.events.base.method_tables import (
    MAX_SERIES,
    Column,
    MethodTable,
    Row,
    TableView,
    method_table,
)
from edgefed.terminal.units import counted

LAYERS = "matched layers"

DEVICES, GROWTH = "devices", "growth"
"""Series beside the widths of the layers."""

_COLUMNS = (
    Column(name="local", format="d"),
    Column(name="atoms", format="d"),
    Column(name="growth", format=".2f", show="bar"),
    Column(name="holders", format=".2f"),
    Column(name="objective", format=".6g"),
    Column(name="matched", unit="round", format="d"),
)


def layer_row(
    layer: str, local: int, atoms: int, holders: float, objective: float | None, matched: int | None
) -> tuple[str, tuple[Any, ...]]:
    """Return the row of a layer.

    Args:
        layer: its name.
        local: number of its units on a device.
        atoms: number of its units in the global model; 0 before it was matched.
        holders: mean number of devices that hold an atom.
        objective: log-posterior of the matching, up to a constant; None where none was computed.
        matched: round in which it was matched; None before.
    """
    if not atoms:
        return layer, (local, None, None, None, None, None)
    return layer, (local, atoms, atoms / local if local else None, holders, objective, matched)


def layer_table(
    rows: Iterable[tuple[str, tuple[Any, ...]]], number: int, devices: int, growth: float | None
) -> MethodTable:
    """Return the table.

    Args:
        rows: of the layers, in the order of the network.
        number: the round in which the last layer was matched; 0 before the first.
        devices: that take part in it.
        growth: parameters of the last complete global model for each of a device's; None without.
    """
    listed = list(rows)
    widths = {layer: cells[1] for layer, cells in listed if number and cells[5] == number}
    series = {**dict([*widths.items()][: MAX_SERIES - 2]), DEVICES: devices}
    return method_table(
        LAYERS,
        _COLUMNS,
        listed,
        key="layer",
        series={**series, **({} if growth is None else {GROWTH: growth})} if number else {},
        round=number,
        verdict=_verdict(
            [cells for layer, cells in listed if layer in widths], len(listed), devices, growth
        ),
    )


def _verdict(
    matched: Sequence[Sequence[Any]], layers: int, devices: int, growth: float | None
) -> str:
    """Return how many units matching found for those of a device, and how many devices share one.

    Args:
        matched: cells of the layers that were matched in this round.
        layers: number of all layers.
        devices: that take part.
        growth: of the last complete global model.
    """
    if not matched:
        return f"no layer of {layers} is matched yet"
    local, atoms = (sum(cells[place] for cells in matched) for place in (0, 1))
    holders = sum(cells[1] * cells[3] for cells in matched) / max(1, atoms)
    parts = [
        f"matching found {atoms} units for the {local} of a device",
        f"on average {holders:.1f} of {counted(devices, 'device')} hold a unit",
    ]
    if len(matched) < layers:
        parts[0] += f" in {len(matched)} of {layers} layers"
    if growth is not None:
        parts.insert(1, f"growth {growth:.2f}")
    return "; ".join(parts)


def matching_json(view: TableView, growth: Mapping[int, float]) -> dict[str, Any]:
    """Return the contents of a table of matched layers.

    Args:
        view: the table.
        growth: of the global model after each finished round that has one.
    """
    rows = view.table.rows
    return {
        "round": view.round,
        "matched": sum(bool(view.round) and row.cells[5] == view.round for row in rows),
        "devices": int(view.table.series.get(DEVICES) or 0),
        "growth": view.table.series.get(GROWTH),
        "verdict": view.table.verdict,
        "total": len(rows) + view.left_out,
        "layers": [_layer_json(row) for row in rows],
        "history": [
            {
                "round": point.round,
                "devices": int(point.values[DEVICES] or 0),
                "widths": [
                    int(point.values[row.key] or 0) for row in rows if row.key in point.values
                ],
                "growth": growth.get(point.round),
            }
            for point in view.history
        ],
    }


def _layer_json(row: Row) -> dict[str, Any]:
    local, atoms, growth, holders, objective, _ = row.cells
    return {
        "layer": row.key,
        "local": local,
        "atoms": atoms or 0,
        "holders": holders or 0.0,
        "objective": objective,
        "growth": growth,
    }

"""The matched layers of a run as text and as JSON values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edgefed.cli.run_part import RunPart
from edgefed.console import columns
from edgefed.events.layer_table import (
    LAYER_HEAD,
    growth_of,
    layer_cells,
    layer_names,
    layers_left_out,
    width_of,
)
from edgefed.events.matching_events import matching_in_words
from edgefed.events.matching_history import MatchingHistory
from edgefed.events.snapshot import LayerMatchView
from edgefed.events.thinned import evenly_spaced
from edgefed.report.matching import growth_by_round, matching_picture
from edgefed.report.run_data import RunData
from edgefed.units import counted

MOST_ROUNDS = 10
"""Rounds that have a column each."""


def matching_part(run_data: RunData) -> RunPart:
    """Return the matched layers of a run as a command prints them."""
    record, history = run_data.record, run_data.summary.matching
    algorithm = record.get("algorithm", "")
    missing = f"Run {record['run']} matches no layers: its algorithm is {algorithm}."
    return RunPart(
        missing="" if history is not None else missing,
        code="matching.none",
        values=lambda: matching_json(run_data),
        text=lambda: matching_text(run_data, history) if history is not None else "",
        picture=lambda: matching_picture(run_data, history) if history is not None else "",
    )


def matching_json(run_data: RunData) -> dict[str, Any]:
    """Return the matched layers of a run; of a run without any, ``layers`` is empty."""
    history = run_data.summary.matching
    if history is None:
        return {"run": run_data.record["run"], "layers": []}
    growth = dict(growth_by_round(run_data))
    return {
        "run": run_data.record["run"],
        **history.now.model_dump(mode="json", exclude={"layers", "rounds"}),
        "layers": [_layer_json(layer) for layer in history.now.layers],
        "history": [
            {**row.model_dump(mode="json"), "growth": growth.get(row.round)}
            for row in history.rounds
        ],
    }


def _layer_json(layer: LayerMatchView) -> dict[str, Any]:
    return {**layer.model_dump(mode="json"), "growth": growth_of(layer)}


def matching_text(run_data: RunData, history: MatchingHistory) -> str:
    """Return the layers, and their widths by round, as tables below each other."""
    now = history.now
    numbers = layer_names(now)
    rows = [layer_cells(name, row) for name, row in zip(numbers, now.layers, strict=True)]
    parts = [_headline(run_data, history), columns([LAYER_HEAD, *rows])]
    if layers_left_out(now):
        parts.append(layers_left_out(now))
    if history.rounds:
        parts.append(columns(list(_width_rows(history))))
        if len(history.rounds) > MOST_ROUNDS:
            parts.append(f"{MOST_ROUNDS} of {len(history.rounds)} rounds are shown.")
    return "\n\n".join(parts)


def _headline(run_data: RunData, history: MatchingHistory) -> str:
    now = history.now
    told = [f"{run_data.record['run']}, round {now.round}", matching_in_words(now)]
    return ", ".join([*told, counted(now.devices, "device")])


def _width_rows(history: MatchingHistory) -> Iterator[tuple[str, ...]]:
    """Yield a row a layer, with its atoms after each of some rounds."""
    shown = evenly_spaced(history.rounds, MOST_ROUNDS)
    yield ("ATOMS", *(f"ROUND {row.round}" for row in shown))
    for number, name in enumerate(layer_names(history.now)):
        widths = (width_of(row, number) for row in shown)
        yield (name, *("" if width is None else str(width) for width in widths))

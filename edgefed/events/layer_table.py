"""The matched layers of a run as rows of a table, for commands, reports and the dashboard."""

from __future__ import annotations

from edgefed.events.snapshot import LayerMatchView, MatchingView, MatchRoundView

LAYER_HEAD = ("LAYER", "LOCAL", "ATOMS", "GROWTH", "HOLDERS", "OBJECTIVE")
"""The heads of ``layer_cells``."""


def layer_names(view: MatchingView) -> list[str]:
    """Return the names of the layers; an unknown one has its number."""
    return [layer.layer or f"#{number}" for number, layer in enumerate(view.layers, 1)]


def growth_of(layer: LayerMatchView) -> float | None:
    """Return a layer's atoms divided by its units on a device; None before it was matched."""
    return layer.atoms / layer.local if layer.atoms and layer.local else None


def layer_cells(name: str, layer: LayerMatchView) -> tuple[str, ...]:
    """Return a layer's row of a table; cells that are unknown before its matching are empty."""
    growth = growth_of(layer)
    return (
        name,
        str(layer.local),
        str(layer.atoms) if layer.atoms else "",
        "" if growth is None else f"{growth:.2f}",
        f"{layer.holders:.2f}" if layer.atoms else "",
        "" if layer.objective is None else f"{layer.objective:.6g}",
    )


def layers_left_out(view: MatchingView) -> str:
    """Return how many layers are shown, if not all are."""
    told = len(view.layers)
    return f"The first {told} of {view.total} layers are shown." if told < view.total else ""


def width_of(row: MatchRoundView, number: int) -> int | None:
    """Return the atoms of the layer of this number after a round; None for none yet."""
    return row.widths[number] if number < len(row.widths) else None

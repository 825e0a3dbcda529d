"""Events about matched averaging: the widths that each layer's matching found, and their fold."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from edgefed.events.event_parts import event_parts
from edgefed.events.snapshot import LayerMatchView, MatchingView, MatchRoundView

MAX_LAYERS = 1024
"""Layers that events tell; of a deeper network they tell the first ones."""

MAX_NAME = 80
"""Characters of a layer's name in an event."""

MAX_ROUNDS = 120
"""Rounds whose widths a snapshot keeps at most."""

MAX_WIDTHS = 8192
"""Widths that it keeps of all rounds together, but for the newest round."""


def matching_events(
    run: str, view: MatchingView, changed: Mapping[int, LayerMatchView]
) -> Iterator[dict[str, Any]]:
    """Yield the fields of ``matching`` events: one, or as many as the layers need.

    Args:
        run: the run's id.
        view: the run's matching; its layers and its rounds are not part of the events.
        changed: the layers that changed, by number.
    """
    told = view.model_dump(mode="json", exclude={"layers", "rounds"})
    rows = [("layers", [number, row.model_dump(mode="json")]) for number, row in changed.items()]
    parts = event_parts(rows, ("layers",), len(json.dumps(told)))
    for part in parts if rows else [{"layers": []}]:
        yield {"run": run, **told, **part}


@dataclass(frozen=True)
class MatchingChange:
    """The change in a ``matching`` event."""

    view: MatchingView
    layers: tuple[tuple[int, LayerMatchView], ...]

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> MatchingChange:
        """Return the change in an event's fields.

        Raises:
            KeyError, TypeError, ValueError: a field is missing or wrong.
        """
        told = {name: value for name, value in fields.items() if name not in ("layers", "rounds")}
        layers = tuple(
            (_checked(number), LayerMatchView.model_validate(row))
            for number, row in fields["layers"]
        )
        return cls(MatchingView.model_validate(told), layers)


class MatchingTable:
    """The matching of the current run; a change takes time for its rows only.

    Args:
        view: before the first event.
    """

    def __init__(self, view: MatchingView | None) -> None:
        self._view = view
        self._layers = dict(enumerate(view.layers)) if view is not None else {}

    def apply(self, change: MatchingChange) -> None:
        """Apply a change."""
        before = self._view.rounds if self._view is not None else ()
        self._layers.update(change.layers)
        numbers = range(max(self._layers, default=-1) + 1)
        layers = tuple(self._layers.get(number, LayerMatchView()) for number in numbers)
        view = change.view
        update: dict[str, Any] = {"layers": layers, "rounds": before}
        if view.round:
            point = round_point(view, layers)
            rounds = (*(row for row in before if row.round != view.round), point)
            update["rounds"] = rounds[-_most_rounds(view) :]
        self._view = view.model_copy(update=update)

    def clear(self) -> None:
        """Forget all layers, because another run begins."""
        self._view, self._layers = None, {}

    def view(self) -> MatchingView | None:
        """Return the run's matching; None for an algorithm without it."""
        return self._view


def round_point(view: MatchingView, layers: tuple[LayerMatchView, ...]) -> MatchRoundView:
    """Return the widths of the layers that are matched in the view's round."""
    widths = tuple(layer.atoms for layer in layers[: view.matched])
    return MatchRoundView(round=view.round, devices=view.devices, widths=widths)


def _most_rounds(view: MatchingView) -> int:
    """Return of how many rounds a snapshot keeps the widths."""
    return max(1, min(MAX_ROUNDS, MAX_WIDTHS // max(1, min(view.total, MAX_LAYERS))))


def _checked(number: Any) -> int:
    if not 0 <= int(number) < MAX_LAYERS:
        raise ValueError(f"there is no layer {number}")
    return int(number)


def matching_in_words(view: MatchingView) -> str:
    """Return the progress of the matching, such as ``3 of 4 layers matched, growth 1.32``."""
    told = f"{view.matched} of {view.total} layers matched"
    return told if view.growth is None else f"{told}, growth {view.growth:.2f}"

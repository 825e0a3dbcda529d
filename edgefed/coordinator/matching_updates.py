"""Emit the changes in a run's matched layers to the journal."""

from __future__ import annotations

from typing import Any

from edgefed.algorithms.base import Algorithm, State
from edgefed.algorithms.match_report import LayerMatch, MatchReport
from edgefed.coordinator.event_journal import EventJournal
from edgefed.coordinator.finite_numbers import measured, rounded
from edgefed.events.matching_events import MAX_LAYERS, MAX_NAME, matching_events
from edgefed.events.snapshot import LayerMatchView, MatchingView


class MatchingUpdates:
    """Emits the matching of one run's layers.

    Args:
        run: its id.
        algorithm: keeps the matching in its state.
        journal: receives the changes.
    """

    def __init__(self, run: str, algorithm: Algorithm[Any], journal: EventJournal) -> None:
        self._run = run
        self._algorithm = algorithm
        self._journal = journal
        self._told = MatchReport()

    def tell(self, state: State) -> None:
        """Emit the changes since the last report; the first time, everything."""
        report = self._algorithm.match_report(state)
        if not report.layers or report == self._told:
            return
        known = dict(enumerate(self._told.layers))
        changed = {
            number: layer_match_view(layer)
            for number, layer in enumerate(report.layers[:MAX_LAYERS])
            if known.get(number) != layer
        }
        for fields in matching_events(self._run, matching_view(report), changed):
            self._journal.emit("matching", **fields)
        self._told = report


def matching_view(report: MatchReport) -> MatchingView:
    """Return the run's matching as events and snapshots show it, with the layers."""
    return MatchingView(
        round=report.round,
        matched=report.matched,
        devices=report.devices,
        growth=measured(report.growth),
        total=len(report.layers),
        layers=tuple(map(layer_match_view, report.layers[:MAX_LAYERS])),
    )


def layer_match_view(layer: LayerMatch) -> LayerMatchView:
    """Return a layer's matching as events and snapshots show it."""
    return LayerMatchView(
        layer=layer.layer[:MAX_NAME],
        local=layer.local,
        atoms=layer.atoms,
        holders=rounded(layer.holders),
        objective=measured(layer.objective),
    )

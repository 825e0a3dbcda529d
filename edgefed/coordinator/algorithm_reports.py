"""Reports of an algorithm's state, for the journal and for the row of a round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgefed.algorithms.base import State
from edgefed.algorithms.optional_interfaces import CompleteAlgorithm
from edgefed.coordinator.event_journal import EventJournal
from edgefed.coordinator.expert_updates import ExpertUpdates
from edgefed.coordinator.matching_updates import MatchingUpdates
from edgefed.coordinator.table_updates import TableUpdates

EPSILON = "epsilon"
"""Name of the privacy cost among an algorithm's metrics."""

GROWTH = "growth"
"""Name of the growth in the row of a round."""


class AlgorithmReports:
    """The reports of the algorithm of one run.

    Args:
        run: its id.
        algorithm: reports of its state.
        journal: receives the changes.
    """

    def __init__(self, run: str, algorithm: CompleteAlgorithm[Any], journal: EventJournal) -> None:
        self._algorithm = algorithm
        self._experts = ExpertUpdates(run, algorithm, journal)
        self._matching = MatchingUpdates(run, algorithm, journal)
        self._tables = TableUpdates(run, algorithm, journal)

    def tell(self, state: State) -> None:
        """Emit the changes since the last reports; the first time, everything."""
        self._experts.tell(state)
        self._matching.tell(state)
        self._tables.tell(state)

    def epsilon(self, state: State) -> float | None:
        """Return the epsilon that the merged rounds spent; None without differential privacy."""
        return self._algorithm.round_metrics(state).get(EPSILON)

    def round_metrics(self, state: State) -> Mapping[str, float]:
        """Return the metrics, series and growth of the state for the row of a round."""
        growth = self._algorithm.match_report(state).growth
        measured = {**self._tables.series(), **self._algorithm.round_metrics(state)}
        return measured if growth is None else {**measured, GROWTH: growth}

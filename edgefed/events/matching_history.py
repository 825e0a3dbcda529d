"""How the widths of a run's matched layers developed, in few points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgefed.events.matching_events import MatchingChange, MatchingTable
from edgefed.events.snapshot import MatchingView, MatchRoundView
from edgefed.events.thinned import Thinned
from edgefed.events.view import View

MAX_POINTS = 60
"""Most reported rounds; of more, every n-th."""


class MatchingHistory(View):
    """The matching of a run.

    Attributes:
        now: after the last exchange.
        rounds: the widths over the rounds, oldest first.
    """

    now: MatchingView
    rounds: tuple[MatchRoundView, ...] = ()


class GatheredMatching:
    """The history during the events."""

    def __init__(self) -> None:
        self._table = MatchingTable(None)
        self._rounds = Thinned[MatchRoundView](MAX_POINTS)

    def take(self, event: Mapping[str, Any]) -> None:
        """Take a ``matching`` event.

        Raises:
            KeyError, TypeError, ValueError: a field of the event is missing or wrong.
        """
        self._table.apply(MatchingChange.of(event))
        view = self._table.view()
        for point in view.rounds[-1:] if view is not None and view.round else ():
            self._rounds.put(point.round, point)

    def history(self) -> MatchingHistory | None:
        """Return the history; None for a run without matching."""
        view = self._table.view()
        if view is None:
            return None
        now = view.model_copy(update={"rounds": ()})
        return MatchingHistory(now=now, rounds=self._rounds.points())

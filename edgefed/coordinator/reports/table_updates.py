"""Send the tables of a run's algorithm to the journal, with only the rows that changed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.events.base.method_tables import (
    MAX_NAME,
    MethodTable,
    TableView,
    removal,
    table_events,
    within_limits,
)
from edgefed.terminal.printable import printable

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]")
"""Characters that names of metrics do not contain."""


class TableUpdates:
    """The tables of one run.

    Args:
        run: its id.
        algorithm: its ``view`` returns the tables; one that raises costs a warning and no run.
        journal: receives the events.
    """

    def __init__(self, run: str, algorithm: CompleteAlgorithm[Any], journal: EventJournal) -> None:
        self._run = run
        self._algorithm = algorithm
        self._journal = journal
        self._sent: dict[str, TableView] = {}
        self._warned = False

    def tell(self, state: State) -> None:
        """Emit the changes since the last call; at the first one, all tables."""
        try:
            views = within_limits(_checked(self._algorithm.view(state)))
        except Exception as error:  # what a plug-in's code raises is not known
            self._warn(error)
            return
        names = {view.table.name for view in views}
        for name in [name for name in self._sent if name not in names]:
            self._journal.emit("table", **removal(self._run, state.round, name))
            del self._sent[name]
        for made in views:
            number = state.round if made.table.round is None else made.table.round
            table = made.table.model_copy(update={"round": None})
            update = {"table": table, "round": number if table.series else 0}
            view = made.model_copy(update=update)
            before = self._sent.get(view.table.name)
            if view == before:
                continue
            for fields in table_events(self._run, number, before, view):
                self._journal.emit("table", **fields)
            self._sent[view.table.name] = view

    def round_metrics(self, state: State) -> Mapping[str, float]:
        """Return the numbers of the state for the row of a round.

        These are the last values of all series, named ``TABLE.SERIES``, and the metrics.
        """
        series = {
            _NOT_IN_NAMES.sub("_", f"{name}.{series}")[:MAX_NAME]: value
            for name, view in self._sent.items()
            for series, value in view.table.series.items()
            if value is not None
        }
        return {**series, **self._algorithm.round_metrics(state)}

    def _warn(self, error: Exception) -> None:
        if self._warned:
            return
        self._warned = True
        reason = printable(" ".join(str(error).split()))[:200]
        text = f"the tables of {self._algorithm.name} are not shown: {type(error).__name__}: "
        self._journal.emit("note", level="warning", text=f"{text}{reason}")


def _checked(tables: Iterable[MethodTable]) -> tuple[MethodTable, ...]:
    """Return the tables of a ``view``, checked.

    Raises:
        TypeError: something in it is no table.
    """
    checked = tuple(tables)
    if wrong := [table for table in checked if not isinstance(table, MethodTable)]:
        raise TypeError(f"view returned {type(wrong[0]).__name__} instead of MethodTable")
    return checked

"""Send the tables of a run to the journal, with only the rows that changed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.events.base.method_tables import (
    MAX_CELLS,
    MAX_NAME,
    SYSTEM,
    MethodTable,
    OwnTable,
    TableView,
    removal,
    table_events,
    within_limits,
)
from edgefed.terminal.printable import printable

SEND_EVERY = 1.0
"""Least seconds between two events of a table of fleet or engine; rounds may be shorter."""

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]")
"""Characters that names of metrics do not contain."""


class TableUpdates:
    """The tables of one run.

    Args:
        run: its id.
        algorithm: its ``view`` returns the method's tables; one that raises costs a warning and no
            run.
        journal: receives the events.
    """

    def __init__(self, run: str, algorithm: CompleteAlgorithm[Any], journal: EventJournal) -> None:
        self._run = run
        self._algorithm = algorithm
        self._journal = journal
        self._sent: dict[str, TableView] = {}
        self._own_sent: dict[str, TableView] = {}
        self._own: list[OwnTable] = []
        self._own_round = 0
        self._sent_at = -math.inf
        self._warned = False

    def tell(self, state: State) -> None:
        """Emit the changes of the method's tables since the last call; at the first one, all."""
        try:
            views = within_limits(_checked(self._algorithm.view(state)))
        except Exception as error:  # what a plug-in's code raises is not known
            self._warn(error)
            return
        names = {view.table.name for view in views}
        for name in [name for name in self._sent if name not in names]:
            self._journal.emit("table", **removal(self._run, state.round, name))
            del self._sent[name]
        self._send(views, state.round, self._sent)

    def tell_own(self, number: int, tables: Iterable[OwnTable], now: float) -> None:
        """Take the tables of engine and fleet after a round, and emit their changes if it is time.

        A method's table of the same name is shown instead.

        Args:
            number: the round.
            tables: the tables.
            now: the monotonic second.
        """
        self._own = [own for own in tables if own.name not in self._sent and own.series()]
        self._own_round = number
        if self._own and now - self._sent_at >= SEND_EVERY:
            self._sent_at = now
            self.flush()

    def flush(self) -> None:
        """Emit the changes of the tables of engine and fleet that were not emitted yet.

        All of them together have as many cells as those of a method that name no devices.
        """
        tables = [own.table() for own in self._own]
        views = within_limits(filter(None, tables), device_cells=MAX_CELLS)
        self._send(views, self._own_round, self._own_sent)

    def _send(
        self, views: Sequence[TableView], round_number: int, sent: dict[str, TableView]
    ) -> None:
        for made in views:
            number = round_number if made.table.round is None else made.table.round
            table = made.table.model_copy(update={"round": None})
            update = {"table": table, "round": number if table.series else 0}
            view = made.model_copy(update=update)
            before = sent.get(view.table.name)
            if view == before:
                continue
            for fields in table_events(self._run, number, before, view):
                self._journal.emit("table", **fields)
            sent[view.table.name] = view

    def round_metrics(self, state: State) -> Mapping[str, float]:
        """Return the numbers of the state for the row of a round.

        These are the last values of all series, named ``TABLE.SERIES``, and the metrics. Names of
        those of fleet and engine begin with ``system.``.
        """
        shown: dict[str, Mapping[str, float | None]] = {
            **{name: view.table.series for name, view in self._sent.items()},
            **{SYSTEM + own.name: own.series() for own in self._own},
        }
        series = {
            _NOT_IN_NAMES.sub("_", f"{name}.{series}")[:MAX_NAME]: value
            for name, values in shown.items()
            for series, value in values.items()
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

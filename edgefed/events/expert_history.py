"""How a run's mixture of experts developed, in few enough points for a picture and a message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgefed.events.expert_events import ExpertChange, ExpertTable, Row
from edgefed.events.snapshot import ExpertRoundView, ExpertsView, MixtureView
from edgefed.events.thinned import Thinned
from edgefed.events.view import View

MAX_MIXTURES = 2000
"""Most devices whose mixtures are reported; the first by name."""

MAX_COURSES = 60
"""Most devices whose mixtures are reported over time; the first that answered."""

MAX_SHARES = 128 * 1024
"""Shares of experts in all courses together."""

MAX_POINTS = 60
"""Most reported rounds of the load, and answers of a device; of more, every n-th."""

MAX_TABLES = 12
"""Most rounds with reported tables."""


class TableView(View):
    """The table after a round."""

    round: int
    rows: tuple[Row, ...]


class CourseView(View):
    """A device's mixtures: of each answer the round, and the shares of the experts."""

    device: str
    points: tuple[tuple[int, Row], ...]


class ExpertHistory(View):
    """The experts of a run.

    Attributes:
        now: after the last round.
        mixtures: of the devices that have answered, by name.
        more_mixtures: number of further devices.
        loads: the load over the rounds, oldest first.
        tables: the table over the rounds, oldest first.
        courses: mixtures over the rounds of some devices, by name.
    """

    now: ExpertsView
    mixtures: tuple[MixtureView, ...] = ()
    more_mixtures: int = 0
    loads: tuple[ExpertRoundView, ...] = ()
    tables: tuple[TableView, ...] = ()
    courses: tuple[CourseView, ...] = ()


class GatheredExperts:
    """The history during the events."""

    def __init__(self) -> None:
        self._table = ExpertTable(None, ())
        self._loads = Thinned[ExpertRoundView](MAX_POINTS)
        self._tables = Thinned[TableView](MAX_TABLES)
        self._courses: dict[str, Thinned[tuple[int, Row]]] = {}

    def take(self, event: Mapping[str, Any]) -> None:
        """Take an ``experts`` event.

        Raises:
            KeyError, TypeError, ValueError: a field of the event is missing or wrong.
        """
        change = ExpertChange.of(event)
        self._table.apply(change)
        view = change.view
        point = ExpertRoundView(round=view.round, load=view.load, entropy=view.entropy)
        self._loads.put(view.round, point)
        whole = self._table.view()
        if whole is not None and whole.table:
            self._tables.put(view.round, TableView(round=view.round, rows=whole.table))
        self._take_mixtures(change)

    def _take_mixtures(self, change: ExpertChange) -> None:
        """Follow the first devices; others have their newest mixture only."""
        shares = MAX_POINTS * max(1, change.view.experts)
        most = min(MAX_COURSES, max(1, MAX_SHARES // shares))
        for mixture in change.mixtures:
            if mixture.device not in self._courses and len(self._courses) < most:
                self._courses[mixture.device] = Thinned(MAX_POINTS)
            if mixture.device in self._courses:
                point = (mixture.round, mixture.shares)
                self._courses[mixture.device].put(mixture.round, point)

    def history(self) -> ExpertHistory | None:
        """Return the history; None for a run without experts."""
        now = self._table.view()
        if now is None:
            return None
        mixtures = self._table.mixtures()
        return ExpertHistory(
            now=now.model_copy(update={"rounds": ()}),
            mixtures=mixtures[:MAX_MIXTURES],
            more_mixtures=max(0, len(mixtures) - MAX_MIXTURES),
            loads=self._loads.points(),
            tables=self._tables.points(),
            courses=tuple(
                CourseView(device=name, points=self._courses[name].points())
                for name in sorted(self._courses)
            ),
        )

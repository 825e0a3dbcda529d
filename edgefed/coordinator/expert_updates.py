"""Emit the changes in a run's mixture of experts to the journal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from edgefed.algorithms.base import Algorithm, State
from edgefed.algorithms.expert_report import DeviceMixture, ExpertReport
from edgefed.coordinator.event_journal import EventJournal
from edgefed.coordinator.finite_numbers import measured, rounded
from edgefed.events.expert_events import Row, expert_events, told_rows
from edgefed.events.snapshot import ExpertsView, MixtureView

LEAST_CHANGE = 0.005
"""Change of a share from which an event tells its row of the table again."""


class ExpertUpdates:
    """Emits the state of one run's experts.

    Args:
        run: its id.
        algorithm: keeps the experts in its state.
        journal: receives the changes.
    """

    def __init__(self, run: str, algorithm: Algorithm[Any], journal: EventJournal) -> None:
        self._run = run
        self._algorithm = algorithm
        self._journal = journal
        self._told = ExpertReport()
        self._rows: dict[int, Row] = {}

    def tell(self, state: State) -> None:
        """Emit the changes since the last report; the first time, everything."""
        report = self._algorithm.expert_report(state)
        if not report.experts or report == self._told:
            return
        rows = {number: row for number, row in table_rows(report) if self._is_news(number, row)}
        known = {mixture.device: mixture for mixture in self._told.mixtures}
        mixtures = [each for each in report.mixtures if known.get(each.device) != each]
        for fields in expert_events(
            self._run, experts_view(report), rows, map(mixture_view, mixtures)
        ):
            self._journal.emit("experts", **fields)
        self._rows |= rows
        self._told = report

    def _is_news(self, number: int, row: Row) -> bool:
        told = self._rows.get(number)
        if told is None:
            return True
        return any(abs(a - b) >= LEAST_CHANGE for a, b in zip(told, row, strict=True))


def experts_view(report: ExpertReport) -> ExpertsView:
    """Return the run's experts as events and snapshots show them, with the table."""
    return ExpertsView(
        experts=report.experts,
        round=report.round,
        condition=report.condition,
        load=_rounded(report.load),
        entropy=None if report.entropy is None else rounded(report.entropy),
        dead=report.dead,
        collapsed=report.collapsed,
        divergence=tuple(map(measured, report.divergence)),
        table=tuple(row for _, row in table_rows(report)),
        labels=len(report.table),
    )


def table_rows(report: ExpertReport) -> list[tuple[int, Row]]:
    """Return the reported rows of the table, with their numbers."""
    count = told_rows(report.experts, len(report.table))
    return [(number, _rounded(row)) for number, row in enumerate(report.table[:count])]


def mixture_view(mixture: DeviceMixture) -> MixtureView:
    """Return a device's mixture as events and snapshots show it."""
    return MixtureView(
        device=mixture.device,
        samples=mixture.samples,
        round=mixture.round,
        shares=_rounded(mixture.shares),
        kept=mixture.kept,
    )


def _rounded(values: Iterable[float]) -> Row:
    return tuple(map(rounded, values))

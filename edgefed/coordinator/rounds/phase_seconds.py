"""The engine's own table: the seconds that the phases of a run's rounds take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from edgefed.events.base.method_tables import (
    Column,
    MethodTable,
    TableView,
    method_table,
    numbers_in,
)
from edgefed.events.base.model import Phase
from edgefed.process.clock import Clock
from edgefed.terminal.units import counted

PHASES = "phases"
COLUMNS = (
    *(Column(name=name, unit="s", format=".3f") for name in ("last", "mean", "longest", "total")),
    Column(name="share", format=".1%", show="share"),
)
MEASURED: tuple[Phase, ...] = ("select", "collect", "merge", "evaluate")
"""The rows: plan and store an exchange; wait for answers, which are merged as they come; finish the
merge and store it; test the model."""


@dataclass
class _Seconds:
    """The seconds of a phase."""

    current: float = 0.0
    last: float = 0.0
    longest: float = 0.0
    total: float = 0.0


class PhaseSeconds:
    """Measures the phases of one run's rounds.

    Args:
        clock: measures the time.
    """

    name = PHASES
    names_devices = False

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._phase: str | None = None
        self._since = 0.0
        self._seconds: dict[str, _Seconds] = {phase: _Seconds() for phase in MEASURED}
        self._round = 0

    def restore(self, tables: Iterable[TableView], number: int) -> None:
        """Go on after a round from the seconds in the tables that the run had before a restart."""
        before = numbers_in(tables, PHASES, COLUMNS)
        for phase in before.keys() & self._seconds.keys():
            last, _, longest, total, _ = before[phase]
            self._seconds[phase], self._round = _Seconds(0.0, last, longest, total), number

    def enter(self, phase: Phase | None) -> None:
        """End the current phase, and begin another one; None for none, as in a pause."""
        now = self._clock.monotonic()
        if self._phase is not None:
            self._seconds[self._phase].current += now - self._since
        self._phase, self._since = phase, now

    def end_round(self, number: int) -> None:
        """End the current phase and a round."""
        self.enter(None)
        self._round = number
        for seconds in self._seconds.values():
            seconds.last, seconds.current = seconds.current, 0.0
            seconds.longest = max(seconds.longest, seconds.last)
            seconds.total += seconds.last

    def series(self) -> dict[str, float]:
        """Return the seconds of each phase of the last round; nothing before its end."""
        seconds = self._seconds.items() if self._round else ()
        return {phase: round(took.last, 4) for phase, took in seconds}

    def table(self) -> MethodTable | None:
        """Return the table; None before the first round has ended."""
        if not self._round:
            return None
        # Of no time at all, the shares are zero
        whole = sum(seconds.total for seconds in self._seconds.values()) or 1.0
        rows = []
        for phase, seconds in self._seconds.items():
            mean = seconds.total / self._round
            cells = (seconds.last, mean, seconds.longest, seconds.total, seconds.total / whole)
            rows.append((phase, [round(cell, 4) for cell in cells]))
        longest = max(self._seconds, key=lambda phase: self._seconds[phase].total)
        share = self._seconds[longest].total / whole
        rounds = counted(self._round, "round")
        return method_table(
            PHASES,
            COLUMNS,
            rows,
            key="phase",
            series=self.series(),
            verdict=f"{longest} took {share:.0%} of the time of {rounds}",
        )

"""What devices trained, from what they recorded: what was repeated, and what was trained twice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Trainings:
    """Counts of a device's trainings, or of several devices'.

    Attributes:
        tasks: tasks that were begun, each counted once.
        repeated: times that a task was begun again after the process that worked on it was killed.
        twice: tasks that were begun again though their reply was kept, or though the same process
            had come to an outcome.
        given_up: times that a process began a task again which it had given up for another one.
    """

    tasks: int = 0
    repeated: int = 0
    twice: tuple[str, ...] = ()
    given_up: int = 0

    def plus(self, other: Trainings) -> Trainings:
        """Return the sum."""
        return Trainings(
            self.tasks + other.tasks,
            self.repeated + other.repeated,
            self.twice + other.twice,
            self.given_up + other.given_up,
        )


def trainings(lines: Iterable[str]) -> Trainings:
    """Count what a device recorded (``tests/programs/recording_agent.py``)."""
    begun: dict[str, str] = {}
    over: set[tuple[str, str]] = set()
    kept: set[str] = set()
    repeated, given_up, twice = 0, 0, []
    for line in lines:
        what, process, exchange = line.split()
        if what == "kept":
            kept.add(exchange)
        elif what == "ended":
            over.add((process, exchange))
        elif exchange in kept or (process, exchange) in over:
            twice.append(exchange)
        elif exchange in begun:
            again = begun[exchange] == process
            given_up, repeated = given_up + again, repeated + (not again)
        if what == "begun":
            begun[exchange] = process
    return Trainings(len(begun), repeated, tuple(twice), given_up)

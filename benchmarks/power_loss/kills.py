"""The outcome of an activity whose programs are killed, and how a power loss ends a program."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import psutil

from edgefed.errors import EdgeFedError
from tests.programs.forked_programs import ForkedProgram


@dataclass
class Outcome:
    """The points of one activity.

    Attributes:
        activity: its name.
        points: kills.
        hits: those that found the activity at work.
        losses: differences from an undisturbed run.
    """

    activity: str
    points: int = 0
    hits: int = 0
    losses: list[str] = field(default_factory=list)

    def add(self, hit: bool) -> None:
        """Count a point."""
        self.points += 1
        self.hits += hit

    def check(self, holds: bool, loss: str) -> None:
        """Note a loss unless a condition holds."""
        if not holds:
            self.losses.append(f"point {self.points}: {loss}")

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Turn a wait in vain, or a failed check of a test's helper, into a loss."""
        try:
            yield
        except (AssertionError, EdgeFedError, OSError) as error:
            self.check(False, f"{type(error).__name__}: {error}")


def cut_power(program: ForkedProgram) -> bool:
    """Kill a program with all that it started; return whether it was still at work."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(program.pid)
        family = [process, *process.children(recursive=True)]
        for each in family:
            with suppress(psutil.NoSuchProcess):
                each.kill()
    return program.wait(60.0) < 0


def seconds_until(condition: Callable[[], bool], patience: float = 240.0) -> float:
    """Return how long a condition takes to hold; it is looked at each millisecond.

    Raises:
        AssertionError: it does not hold in time.
    """
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > patience:
            raise AssertionError("waited in vain")
        time.sleep(0.001)
    return time.monotonic() - began

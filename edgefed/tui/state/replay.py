"""The position of a replayed recording, and the commands of the dashboard."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol, TypeAlias

ReplayMove: TypeAlias = (
    int
    | Literal[
        "play",
        "faster",
        "slower",
        "next_round",
        "previous_round",
        "next_event",
        "previous_event",
        "start",
        "end",
    ]
)
"""The command of a key in a replay; ``play`` pauses one that plays, a number is that of a round."""

SPEEDS: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, math.inf)
"""Recorded seconds that pass in one, from the slowest replay to one without waiting."""


@dataclass(frozen=True)
class ReplayPosition:
    """The position of a replay.

    Attributes:
        playing: whether it advances by itself.
        speed: recorded seconds that pass in one.
        done: events so far.
        total: events of the recording.
        time: time of the recording; None before its first event.
        left_out: the parts of the file that are not replayed, in words; empty when all are.
    """

    playing: bool
    speed: float
    done: int
    total: int
    time: datetime | None = None
    left_out: str = ""

    @property
    def over(self) -> bool:
        """Whether the recording has ended."""
        return self.done >= self.total


class Replay(Protocol):
    """A replay that keys control."""

    @property
    def rounds(self) -> Collection[int]:
        """The numbers of the rounds to whose start it can go."""
        ...

    def position(self) -> ReplayPosition:
        """Return the present position."""
        ...

    def move(self, move: ReplayMove) -> None:
        """Change the position, the speed, or whether it plays; it follows a moment later."""
        ...


def speed_in_words(speed: float) -> str:
    """Return a speed such as ``4x`` or ``max``."""
    return "max" if math.isinf(speed) else f"{speed:g}x"

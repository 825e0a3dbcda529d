"""Few enough points of a long course for a picture and a message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Thinned(Generic[T]):
    """Evenly spaced points of a course, at most ``limit`` of them, and the newest one.

    When there are more, every second one is left out.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._every = 1
        self._count = 0
        self._kept: list[tuple[int, T]] = []
        self._newest: tuple[int, T] | None = None

    def put(self, number: int, value: T) -> None:
        """Add the value of a round; of several for one round the last one stays."""
        if self._newest is not None and self._newest[0] == number:
            if self._kept and self._kept[-1][0] == number:
                self._kept[-1] = (number, value)
            self._newest = (number, value)
            return
        self._newest = (number, value)
        if self._count % self._every == 0:
            self._kept.append(self._newest)
        self._count += 1
        if len(self._kept) > self._limit:
            self._kept = self._kept[::2]
            self._every *= 2

    def points(self) -> tuple[T, ...]:
        """Return the values, oldest first."""
        kept = list(self._kept)
        if self._newest is not None and (not kept or kept[-1][0] != self._newest[0]):
            kept.append(self._newest)
        return tuple(value for _, value in kept)


def evenly_spaced(points: Sequence[T], count: int) -> list[T]:
    """Return the first point, the last one and evenly spaced ones between them.

    Args:
        points: oldest first.
        count: how many to return at most, 2 or more.
    """
    if len(points) <= count:
        return list(points)
    step = (len(points) - 1) / (count - 1)
    return [points[round(step * number)] for number in range(count)]

"""How the shares in the rows of a run's tables developed, in few enough points for a picture."""

from __future__ import annotations

from edgefed.events.base.method_tables import MethodTable, TableChange
from edgefed.events.base.thinned import Thinned
from edgefed.events.base.view import View

MAX_COURSES = 60
"""Rows of a table that are followed; the first that came."""

MAX_SHARES = 128 * 1024
"""Shares in all courses of a table."""

MAX_POINTS = 60
"""Points of a row; of more, every so many."""

Shares = tuple[float, ...]


class Course(View):
    """The shares of a row over the rounds.

    Attributes:
        table: name of the table.
        key: of the row.
        points: rounds in which the row changed, and its shares from then on, oldest first.
    """

    table: str
    key: str
    points: tuple[tuple[int, Shares], ...]


def share_places(table: MethodTable) -> list[int]:
    """Return the places of a table's columns of shares; none if there is only one."""
    places = [number for number, column in enumerate(table.columns) if column.show == "share"]
    return places if len(places) > 1 else []


def shares_of(table: MethodTable) -> list[tuple[str, Shares]]:
    """Return keys and shares of the rows that have all of them."""
    places = share_places(table)
    pairs = ((row.key, [row.cells[place] for place in places]) for row in table.rows if places)
    return [
        (key, tuple(cell for cell in cells if isinstance(cell, int | float)))
        for key, cells in pairs
        if all(isinstance(cell, int | float) for cell in cells)
    ]


class ShareCourses:
    """Gathers courses while changes come."""

    def __init__(self) -> None:
        self._courses: dict[str, dict[str, Thinned[tuple[int, Shares]]]] = {}

    def take(self, change: TableChange) -> None:
        """Take the change of a table."""
        if change.view is None:
            return
        courses = self._courses.setdefault(change.name, {})
        width = len(share_places(change.view.table))
        most = min(MAX_COURSES, MAX_SHARES // (MAX_POINTS * max(1, width)))
        for key, shares in shares_of(change.view.table):
            if key in courses or len(courses) < most:
                point = (change.view.round, shares)
                courses.setdefault(key, Thinned(MAX_POINTS)).put(change.view.round, point)

    def courses(self) -> tuple[Course, ...]:
        """Return the courses of all tables."""
        return tuple(
            Course(table=name, key=key, points=course.points())
            for name, courses in self._courses.items()
            for key, course in courses.items()
        )

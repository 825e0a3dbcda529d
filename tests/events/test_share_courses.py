"""The shares of a table's rows over the rounds, in few points."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from edgefed.events.base.method_tables import table_events, within_limits
from edgefed.events.base.thinned import Thinned
from edgefed.events.history.summary import MAX_DEVICES, RunSummary, summarise
from edgefed.events.methods import expert_tables as experts
from edgefed.events.methods.share_courses import MAX_COURSES, MAX_POINTS


def events(number: int, *devices: str, share: float = 0.5) -> list[dict[str, Any]]:
    rows = [
        experts.mixture_row(device, 3, number, (share, 1 - share), (0, 1)) for device in devices
    ]
    (view,) = within_limits([experts.mixture_table(2, rows)])
    return [
        json.loads(json.dumps({"kind": "table", **fields}))
        for fields in table_events("r-1", number, None, view)
    ]


def test_a_summary_has_the_course_of_the_shares() -> None:
    course = [each for number in range(200) for each in events(number, "b", share=number / 200)]
    found = RunSummary.model_validate_json(summarise(course).model_dump_json())
    (one,) = found.courses
    assert (one.table, one.key) == (experts.MIXTURES, "b")
    assert MAX_POINTS / 2 <= len(one.points) <= MAX_POINTS + 1
    assert (one.points[0], one.points[-1]) == ((0, (0.0, 1.0)), (199, (0.995, 0.005)))


def test_a_summary_follows_some_rows_and_forgets_none() -> None:
    names = [f"d-{number:04d}" for number in range(MAX_DEVICES + 90)]
    found = summarise(events(1, *names))
    assert len(found.courses) == MAX_COURSES
    (view,) = found.tables
    assert (len(view.table.rows), view.left_out) == (MAX_DEVICES, 90)


def test_a_table_with_one_share_has_no_course() -> None:
    (view,) = within_limits([experts.load_table(2, 1, (0.5, 0.5), 0.7, {}, (), ())])
    told = [{"kind": "table", **fields} for fields in table_events("r-1", 1, None, view)]
    assert summarise(told).courses == ()


@pytest.mark.parametrize("count", [0, 1, 5, 6, 7, 100, 101])
def test_a_thinned_course_is_evenly_spaced_and_ends_with_the_newest(count: int) -> None:
    course = Thinned[int](5)
    for number in range(count):
        course.put(number, -1)
        course.put(number, number)
    points = course.points()
    assert len(points) <= 6
    if count:
        assert (points[0], points[-1]) == (0, count - 1)
        assert len({b - a for a, b in pairwise(points[:-1])}) <= 1

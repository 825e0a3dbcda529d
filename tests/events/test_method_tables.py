"""The tables of a method: what a value holds, and that events rebuild it with its history."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefed.events.base.device_columns import MAX_CHARACTERS
from edgefed.events.base.method_tables import (
    MAX_CELLS,
    MAX_OWN_TABLES,
    MAX_POINTS,
    MAX_ROWS,
    MAX_TABLES,
    Column,
    MethodTable,
    MethodTables,
    TableChange,
    TableView,
    method_table,
    removal,
    table_events,
    within_limits,
)

VALUE = Column(name="value")


def table(rows: dict[str, Any], name: str = "t", **more: Any) -> MethodTable:
    return method_table(name, [VALUE], [(key, [cell]) for key, cell in rows.items()], **more)


def sent(tables: MethodTables, number: int, before: TableView | None, after: MethodTable) -> Any:
    """Apply the events between two tables as they arrive; return the new view and the events."""
    (view,) = within_limits([after])
    events = json.loads(json.dumps(list(table_events("r-1", number, before, view))))
    for fields in events:
        tables.apply(TableChange.of(fields))
    return view, events


def test_a_value_holds_only_what_can_be_shown_and_sent() -> None:
    made = table(
        {"a\x1b[2J": "x\x1b]0;y", "nan": math.nan, "np": np.float32(0.1), "on": True, "n": 2**40},
        verdict="one\ntwo",
        series={"inf": math.inf},
    )
    assert [row.key for row in made.rows] == ["a [2J", "nan", "np", "on", "n"]
    assert [row.cells[0] for row in made.rows] == ["x ]0;y", None, 0.1, "yes", 2**40]
    assert (made.verdict, made.series) == ("one two", {"inf": None})
    assert [len(text) for text in made.texts()[0]] == [5, 6]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: method_table("t", [VALUE], [("a", [1, 2])]),
        lambda: method_table("t", [VALUE], [("a", [1]), ("a", [2])]),
        lambda: method_table("t", [VALUE], [("a", [[1]])]),
        lambda: method_table("", [VALUE], []),
        lambda: method_table("t", [VALUE] * 129, []),
        lambda: Column(name="wide", format="9999d"),
        lambda: within_limits([table({})] * 2),
        lambda: within_limits(table({}, str(number)) for number in range(MAX_TABLES + 1)),
    ],
)
def test_a_wrong_value_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"cells|key|cell|name|column|format|tables|most"):
        wrong()


def test_numbers_are_written_as_their_column_says() -> None:
    assert Column(name="a", format=".1%").text(0.256) == "25.6%"
    assert Column(name="a", format=",d").text(12345.0) == "12,345"
    assert [VALUE.text(each) for each in (None, "word", 7, 0.123456)] == ["", "word", "7", "0.1235"]
    assert Column(name="time", unit="s").heading == "time [s]"


contents = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3), max_size=5)


@given(st.lists(contents, min_size=1, max_size=5))
def test_events_turn_any_table_into_any_other(course: list[dict[str, int]]) -> None:
    tables, before = MethodTables(), None
    for number, rows in enumerate(course):
        shuffled = dict(sorted(rows.items(), reverse=number % 2 == 1))
        before, _ = sent(tables, number, before, table(shuffled))
        (view,) = tables.views()
        assert view.table == before.table
        assert [row.key for row in view.table.rows] == list(shuffled), "in their order"


def test_readers_have_room_for_all_tables_of_a_run_and_no_others() -> None:
    tables, most = MethodTables(), MAX_TABLES + MAX_OWN_TABLES
    for number in range(most + 1):
        sent(tables, 1, None, table({}, str(number)))
    assert [view.table.name for view in tables.views()] == [str(number) for number in range(most)]


def test_only_changed_rows_travel() -> None:
    tables = MethodTables()
    before, _ = sent(tables, 1, None, table({"a": 1, "b": 2, "c": 3}))
    _, (event,) = sent(tables, 2, before, table({"a": 1, "c": 4, "d": 5}))
    assert (event["rows"], event["removed"], event["anew"]) == ([["c", 4], ["d", 5]], ["b"], False)


def test_a_large_table_is_cut_and_travels_in_parts() -> None:
    rows = {f"{number:04d}" + "x" * 70: "y" * 120 for number in range(MAX_ROWS + 9)}
    tables = MethodTables()
    _, events = sent(tables, 1, None, table(rows))
    assert len(events) > 1
    assert max(len(json.dumps(event)) for event in events) < 1.1 * MAX_CHARACTERS
    (view,) = tables.views()
    assert (len(view.table.rows), view.left_out) == (MAX_ROWS, 9)
    many = [method_table(str(n), [VALUE] * 15, [(f"{k}", [0] * 15) for k in range(400)])
            for n in range(3)]  # fmt: skip
    kept = [len(each.table.rows) for each in within_limits(many)]
    assert (kept, sum(kept) * 16) == ([400, 112, 0], MAX_CELLS)


def test_the_history_has_one_point_a_round_and_spans_the_run() -> None:
    tables, before = MethodTables(), None
    for number in [0, *range(1000), 999]:
        before, _ = sent(tables, number, before, table({}, series={"s": number}))
    (view,) = tables.views()
    rounds = [point.round for point in view.history]
    assert len(rounds) <= MAX_POINTS
    assert rounds == sorted(set(rounds))
    assert (rounds[0], rounds[-2:]) == (0, [998, 999])
    again = MethodTables([TableView.model_validate_json(view.model_dump_json())])
    assert again.views() == (view,), "it goes on from a snapshot"


def test_a_table_that_is_gone_is_gone() -> None:
    tables = MethodTables()
    sent(tables, 1, None, table({"a": 1}))
    tables.apply(TableChange.of(removal("r-1", 2, "t")))
    assert tables.views() == ()


def test_a_table_whose_columns_change_keeps_rows_of_the_same_cells() -> None:
    tables = MethodTables()
    before, _ = sent(tables, 1, None, table({"a": 1, "b": 2}))
    sent(tables, 2, before, method_table("t", [Column(name="other")], [("a", [1]), ("b", [3])]))
    (view,) = tables.views()
    assert [(row.key, *row.cells) for row in view.table.rows] == [("a", 1), ("b", 3)]

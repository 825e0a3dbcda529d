"""The tables of experts, matched layers and label bounties: their values, as JSON and as views."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edgefed.events.base.bounty_tables import (
    BOUNTIES,
    BUDGETS,
    bounties_of,
    bounty_view,
    budgets_of,
)
from edgefed.events.base.method_tables import (
    MAX_SERIES,
    MethodTable,
    MethodTables,
    TableView,
    table_events,
    table_named,
    within_limits,
)
from edgefed.events.base.model import Event, EventKind
from edgefed.events.base.snapshot import Snapshot
from edgefed.events.methods import expert_tables as experts
from edgefed.events.methods.matching_table import LAYERS, layer_row, layer_table, matching_json
from edgefed.events.methods.old_tables import changes_of
from edgefed.events.state.fold import SnapshotBuilder
from edgefed.sharing.bounty_report import Bounty, Budget

NOW = "2024-05-06T07:08:09.000Z"


def happens(kind: EventKind, **fields: Any) -> Event:
    return Event(time=NOW, kind=kind, fields=fields)


def shown(*rounds: tuple[int, tuple[MethodTable, ...]], devices: tuple[str, ...] = ()) -> Snapshot:
    """Return the snapshot after the tables of some rounds."""
    builder = SnapshotBuilder(Snapshot())
    builder.apply(happens("run", run="r-1", status="running"))
    for device in devices:
        builder.apply(happens("device", device=device, samples=3, joined=True))
    for number, tables in rounds:
        for view in within_limits(tables):
            before = table_named(builder.snapshot().tables, view.table.name)
            for fields in table_events("r-1", number, before, view):
                builder.apply(happens("table", **fields))
    return builder.snapshot()


OPEN = Bounty("b", 10, 10, 5)
CLOSED = Bounty("b", 3, 10, 5, offered=6, received=4, noise=6, status="closed")
CANCELLED = Bounty("a", 0, 8, 4, noise=8, status="cancelled")
LIMITED = Budget("a", released=7, mixes_left=3, epsilon=1 / 3, epsilon_left=0.5, shares=False)
UNLIMITED = Budget("b", released=1, mixes_left=None, epsilon=None, epsilon_left=None)


def test_bounties_and_budgets_come_back_as_they_are() -> None:
    tables = bounty_view((CANCELLED, OPEN, CLOSED), (LIMITED, UNLIMITED))
    snapshot = shown((0, tables), devices=("a", "b"))
    assert [row.model_dump() for row in snapshot.bounties] == [
        each.to_json() for each in (CANCELLED, CLOSED, OPEN)
    ], "by device and label, 3 before 10"
    assert [row.model_dump() for row in snapshot.budgets] == [
        each.to_json() for each in (LIMITED, UNLIMITED)
    ]
    assert [
        (view.open_bounties, view.received_mixes, view.noise_samples) for view in snapshot.devices
    ] == [(0, 0, 8), (1, 4, 6)]
    assert snapshot.tables[0].table.verdict == (
        "mixes fill 14 %, noise 50 %; 1 open, 1 closed, 1 cancelled"
    )
    assert Snapshot.model_validate_json(snapshot.model_dump_json()) == snapshot


NOT_SHARING = replace(LIMITED, released=0)
EMPTY = Budget("c", mixes_left=0)
SPENT = Budget("d", epsilon_left=0.0)
FILLED = replace(CLOSED, offered=0, received=0, noise=10)


@pytest.mark.parametrize(
    ("bounties", "budgets", "words"),
    [
        ([OPEN], [], "no mix yet; 1 open"),
        ([OPEN, CLOSED], [UNLIMITED], "mixes fill 20 %, noise 30 %; "),
        ([replace(CLOSED, received=5, noise=0)], [NOT_SHARING],
         "mixes fill 50 %; 1 closed"),
        ([FILLED], [NOT_SHARING],
         "noise only: no device may give mixes; to allow it: share_mixes = true on the device; "),
        ([OPEN], [NOT_SHARING], "no mix yet: no device may give mixes; "),
        ([FILLED], [NOT_SHARING, UNLIMITED], "noise only: no device has offered mixes; 1 closed"),
        ([replace(FILLED, offered=6)], [UNLIMITED], "noise only; 1 closed"),
        ([FILLED], [EMPTY, SPENT, NOT_SHARING],
         "noise only: the devices that may give mixes have used up their budgets; "),
        ([FILLED], [EMPTY, UNLIMITED], "noise only: no device has offered mixes; "),
        ([replace(FILLED, mixes=0)], [], "noise only: no device requests mixes; "),
        ([replace(FILLED, noise=0)], [], "nothing fills the supplements; 1 closed"),
    ],
)  # fmt: skip
def test_the_verdict_on_bounties(bounties: list[Bounty], budgets: list[Budget], words: str) -> None:
    assert bounty_view(bounties, budgets)[0].verdict.startswith(words)


def test_a_run_that_lacks_no_label_has_no_such_tables() -> None:
    assert bounty_view((), ()) == ()
    assert [table.name for table in bounty_view((OPEN,), ())] == [BOUNTIES]
    assert [table.name for table in bounty_view((), (LIMITED,))] == [BUDGETS]
    assert (bounties_of(()), budgets_of(())) == ((), ())


def test_a_bounty_that_is_gone_is_gone_from_its_device() -> None:
    first, then = (bounty_view(each, ()) for each in ((OPEN, CLOSED), (CLOSED,)))
    snapshot = shown((0, first), (1, then), devices=("b",))
    assert [row.label for row in snapshot.bounties] == [3]
    assert snapshot.devices[0].open_bounties == 0


def mixtures(number: int, *devices: str) -> MethodTable:
    rows = [
        experts.mixture_row(device, 9, number, (0.25, 0.75), (1,) if device == "a" else (0, 1))
        for device in devices
    ]
    return experts.mixture_table(2, rows)


def test_a_device_has_its_mixture_also_when_it_joins_later() -> None:
    snapshot = shown((3, (mixtures(3, "b", "a"),)), devices=("a",))
    assert [(view.mixture, view.kept_experts) for view in snapshot.devices] == [
        ((0.25, 0.75), (1,))
    ]
    builder = SnapshotBuilder(Snapshot.model_validate_json(snapshot.model_dump_json()))
    builder.apply(happens("roster", devices=["b", "c"], samples=[4, 5], joined=True))
    found = {view.device: view.kept_experts for view in builder.snapshot().devices}
    assert found == {"a": (1,), "b": (0, 1), "c": ()}
    builder.apply(happens("run", run="r-2", status="waiting"))
    assert {view.mixture for view in builder.snapshot().devices} == {()}


def test_a_table_that_begins_anew_forgets_the_devices_that_it_named() -> None:
    row = experts.mixture_row("b", 9, 2, (0.2, 0.3, 0.5), (0,))
    other = experts.mixture_table(3, [row])
    snapshot = shown((1, (mixtures(1, "a", "b"),)), (2, (other,)), devices=("a", "b"))
    assert [view.mixture for view in snapshot.devices] == [(), (0.2, 0.3, 0.5)]


PREFER_E1 = ((9, 1, 0.25, 0.75, "all"), (9, 1, 0.25, 0.75, "all"))


def load(number: int, shares: tuple[float, ...], **changes: Any) -> MethodTable:
    values: dict[str, Any] = {
        "entropy": 0.56 if shares else None, "states": {}, "divergence": (), "mixtures": PREFER_E1
    }  # fmt: skip
    return experts.load_table(2, number, shares, **{**values, **changes})


def test_experts_as_json() -> None:
    table = experts.share_table("label", 2, [("0", (0.5, 0.5)), ("1", (1.0, 0.0))])
    views = shown(
        (0, (load(0, ()), table)),
        (1, (load(1, (0.25, 0.75)), table, mixtures(1, "b", "a"))),
    ).tables
    assert experts.experts_json(views, {"1": "cat"}) == {
        "experts": 2,
        "round": 1,
        "condition": "label",
        "load": [0.25, 0.75],
        "entropy": 0.56,
        "dead": [],
        "collapsed": False,
        "verdict": "devices mix experts; all 2 experts are used; entropy of the load 0.56 of 0.69",
        "divergence": [],
        "devices": [0, 2],
        "table": [{"value": "0", "shares": [0.5, 0.5]}, {"value": "cat", "shares": [1.0, 0.0]}],
        "table_rows": 2,
        "mixtures": [
            {"device": "a", "samples": 9, "round": 1, "shares": [0.25, 0.75], "kept": [1]},
            {"device": "b", "samples": 9, "round": 1, "shares": [0.25, 0.75], "kept": [0, 1]},
        ],
        "more_mixtures": 0,
        "history": [
            {"round": 0, "load": [], "entropy": None},
            {"round": 1, "load": [0.25, 0.75], "entropy": 0.56},
        ],
    }
    assert experts.experts_json((), {}) == {"experts": 0}


def test_experts_of_devices_with_divergence_and_a_dead_one() -> None:
    bad = load(4, (1.0, float("nan")), states={1: experts.DEAD}, divergence=(0.5, None))
    found = experts.experts_json(shown((4, (bad,))).tables, {})
    assert (found["condition"], found["table"], found["table_rows"]) == ("device", [], 0)
    assert (found["load"], found["dead"], found["divergence"]) == ([1.0, 0.0], [1], [0.5, None])
    assert found["collapsed"] is False
    assert bad.warning == "dead: e1"


def test_a_device_counts_under_its_largest_share_alone() -> None:
    rows = [(9, 7, 0.2, 0.5, 0.3, "all"), (9, 7, 0.1, 0.8, 0.1, "all"), (9, 7, 0.4, 0.2, 0.4, "")]
    assert experts.users_of(3, rows) == [1, 2, 0]


ALONE_1, ALONE_2, MIXED = (
    (9, 1, 0.95, 0.05, "all"),
    (9, 1, 0.1, 0.9, "all"),
    (9, 1, 0.5, 0.5, "all"),
)


@pytest.mark.parametrize(
    ("mixtures", "states", "words"),
    [
        ([ALONE_1, ALONE_2], {}, "each device uses one expert; all 2 experts are used; entropy"),
        ([MIXED], {}, "devices mix experts; all 2"),
        ([MIXED, ALONE_1, MIXED], {}, "1 of 3 devices use one expert each; all 2 "),
        ([ALONE_1], {1: experts.DEAD}, "each device uses one expert; expert e1 is unused; entropy"),
        ([], {0: experts.DEAD, 1: experts.DEAD}, "experts e0 e1 are unused; entropy"),
        ([], dict.fromkeys(range(9), experts.DEAD), "experts e0 e1 e2 e3 e4 e5 … are unused; "),
        ([ALONE_1], {0: experts.COLLAPSED, 1: experts.DEAD},
         "each device uses one expert; all use e0, which leaves 1 expert unused; entropy"),
    ],
)  # fmt: skip
def test_the_verdict_on_experts(
    mixtures: list[tuple[Any, ...]], states: dict[int, str], words: str
) -> None:
    table = load(1, (0.5, 0.5), states=states, mixtures=mixtures)
    assert table.verdict.startswith(words)
    assert table.verdict.endswith("entropy of the load 0.56 of 0.69")


def test_before_an_answer_there_is_no_verdict_on_experts() -> None:
    assert load(0, ()).verdict == "no device has answered yet; 2 experts"


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ({}, ""),
        ({1: experts.DEAD}, "dead: e1"),
        (dict.fromkeys(range(8), experts.DEAD), "dead: e0 e1 e2 e3 e4 e5 …"),
        ({0: experts.DEAD, 1: experts.COLLAPSED}, "collapsed on e1"),
    ],
)
def test_what_is_wrong_in_words(states: dict[int, str], words: str) -> None:
    assert experts.problem_in_words(states) == words
    collapsed = experts.experts_json(shown((1, (load(1, (0.0, 1.0), states=states),))).tables, {})
    assert collapsed["collapsed"] == ("collapsed" in words)


def layers(number: int, *widths: int, growth: float | None = None) -> MethodTable:
    """Return the table of two layers, of which the first ones were matched in a round."""
    rows = [
        layer_row(
            f"fc{place + 1}",
            4,
            widths[place] if place < len(widths) else (6 if number > 1 else 0),
            2.5,
            -12.25,
            number if place < len(widths) else number - 1,
        )
        for place in range(2)
    ]
    return layer_table(rows, number, 3 if number else 0, growth)


def test_matched_layers_as_json() -> None:
    views = shown(
        (0, (layers(0),)), (1, (layers(1, 5),)), (1, (layers(1, 5, 6, growth=1.25),)),
        (2, (layers(2, 8, growth=1.25),)),
    ).tables  # fmt: skip
    assert matching_json(views[0], {1: 1.25}) == {
        "round": 2,
        "matched": 1,
        "devices": 3,
        "growth": 1.25,
        "verdict": "matching found 8 units for the 4 of a device in 1 of 2 layers; growth 1.25; "
        "on average 2.5 of 3 devices hold a unit",
        "total": 2,
        "layers": [
            {"layer": "fc1", "local": 4, "atoms": 8, "holders": 2.5, "objective": -12.25,
             "growth": 2.0},
            {"layer": "fc2", "local": 4, "atoms": 6, "holders": 2.5, "objective": -12.25,
             "growth": 1.5},
        ],
        "history": [
            {"round": 1, "devices": 3, "widths": [5, 6], "growth": 1.25},
            {"round": 2, "devices": 3, "widths": [8], "growth": None},
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (layers(0), "no layer of 2 is matched yet"),
        (
            layers(1, 5),
            "matching found 5 units for the 4 of a device in 1 of 2 layers;"
            " on average 2.5 of 3 devices hold a unit",
        ),
        (
            layers(1, 5, 6, growth=1.25),
            "matching found 11 units for the 8 of a device; growth 1.25;"
            " on average 2.5 of 3 devices hold a unit",
        ),
    ],
)
def test_the_verdict_on_matched_layers(table: MethodTable, words: str) -> None:
    assert table.verdict == words


def test_a_unit_counts_for_the_mean_of_holders_as_often_as_it_is_there() -> None:
    rows = [layer_row("a", 4, 30, 1.0, None, 1), layer_row("b", 4, 10, 3.0, None, 1)]
    assert "on average 1.5 of 3 devices" in layer_table(rows, 1, 3, None).verdict


def test_before_the_first_matching_nothing_is_known() -> None:
    (view,) = shown((0, (layers(0),))).tables
    found = matching_json(view, {})
    assert (found["round"], found["matched"], found["history"]) == (0, 0, [])
    assert found["layers"][0] == {
        "layer": "fc1", "local": 4, "atoms": 0, "holders": 0.0, "objective": None, "growth": None,
    }  # fmt: skip


def test_of_a_deep_network_the_first_layers_have_a_series() -> None:
    rows = [layer_row(f"l{place}", 4, 5, 1.0, None, 1) for place in range(MAX_SERIES + 9)]
    table = layer_table(rows, 1, 3, 1.5)
    assert (len(table.rows), len(table.series)) == (MAX_SERIES + 9, MAX_SERIES)


# -- events of the version before -----------------------------------------------------------------


def before(*events: tuple[str, dict[str, Any]]) -> dict[str, TableView]:
    """Return the tables that old events result in, by name."""
    tables = MethodTables()
    for kind, fields in events:
        for change in changes_of(kind, fields, tables):
            tables.apply(change)
    return {view.table.name: view for view in tables.views()}


FC1 = {"layer": "fc1", "local": 4, "atoms": 6, "holders": 2.0, "objective": -1.5}


def test_a_layer_that_a_cut_log_left_out_has_its_number() -> None:
    view = before(("matching", {"round": 1, "matched": 2, "total": 9, "layers": [[1, FC1]]}))
    assert [row.key for row in view[LAYERS].table.rows] == ["#1", "fc1"]
    assert view[LAYERS].left_out == 7


def test_old_layers_are_of_the_open_round_or_the_one_before() -> None:
    fc2 = {**FC1, "layer": "fc2"}
    view = before(
        ("matching", {"round": 1, "matched": 2, "total": 2, "layers": [[0, FC1], [1, fc2]]}),
        ("matching", {"round": 2, "matched": 1, "total": 2, "layers": [[0, {**FC1, "atoms": 7}]]}),
    )[LAYERS]
    assert [row.cells[1] for row in view.table.rows] == [7, 6]
    assert [row.cells[-1] for row in view.table.rows] == [2, 1]
    assert [point.values.get("fc2") for point in view.history] == [6, None]


@pytest.mark.parametrize("number", [-1, 1024])
def test_a_layer_that_no_network_has_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="no layer"):
        before(("matching", {"total": 2, "layers": [[number, FC1]]}))


def test_a_row_of_a_negative_number_is_refused() -> None:
    with pytest.raises(ValueError, match="no row"):
        before(("experts", {"experts": 2, "rows": [[-1, [0.5, 0.5]]], "mixtures": []}))


def test_old_experts_change_their_rows_and_devices_only() -> None:
    told = {"experts": 2, "round": 3, "load": [0.9, 0.1], "labels": 9, "condition": "site"}
    one = {"device": "a", "samples": 4, "round": 3, "shares": [0.9, 0.1], "kept": [0]}
    other = {**one, "device": "b", "shares": [0.0, 1.0], "kept": [0, 1]}
    views = before(
        ("experts", {**told, "rows": [[0, [0.5, 0.5]], [1, [1, 0]]], "mixtures": [one]}),
        ("experts", {**told, "collapsed": True, "dead": [1], "rows": [], "mixtures": [other]}),
    )
    found = experts.experts_json(tuple(views.values()), {})
    assert (found["condition"], found["table_rows"], len(found["table"])) == ("site", 9, 2)
    assert [each["device"] for each in found["mixtures"]] == ["a", "b"]
    assert (found["devices"], found["collapsed"], found["dead"]) == ([1, 1], True, [1])


def test_old_bounties_change_and_go() -> None:
    rows = [{"device": "a", "label": label, "count": 9, "mixes": 4} for label in (0, 1)]
    views = before(
        ("labels", {"bounties": rows, "budgets": [], "removed": [], "totals": {"open": 2}}),
        ("labels", {"bounties": [], "budgets": [], "removed": [["a", 0]], "totals": {"open": 1}}),
    )
    assert [row.label for row in bounties_of(views.values())] == [1]
    assert views[BOUNTIES].table.verdict == "1 open"

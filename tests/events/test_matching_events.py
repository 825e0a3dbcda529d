"""Matched layers: their events, the snapshot, and how the widths developed in a summary."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from edgefed.events.fold import SnapshotBuilder
from edgefed.events.matching_events import (
    MAX_LAYERS,
    MAX_ROUNDS,
    MAX_WIDTHS,
    matching_events,
    matching_in_words,
)
from edgefed.events.matching_history import MAX_POINTS
from edgefed.events.model import Event
from edgefed.events.roster import MAX_CHARACTERS
from edgefed.events.snapshot import LayerMatchView, MatchingView, MatchRoundView, Snapshot
from edgefed.events.summary import RunSummary, summarise
from edgefed.wire.envelope import decode, encode
from edgefed.wire.messages import EventMessage

NOW = "2024-05-06T07:08:09.000Z"
VIEW = MatchingView(round=1, matched=1, devices=4, total=2)
FIRST, SECOND = LayerMatchView(layer="conv1", local=6), LayerMatchView(layer="fc1", local=9)
MATCHED = FIRST.model_copy(update={"atoms": 8, "holders": 3.5, "objective": -12.25})


def happens(kind: Any, **fields: Any) -> Event:
    return Event(time=NOW, kind=kind, fields=fields)


def told(
    view: MatchingView = VIEW,
    layers: dict[int, LayerMatchView] | None = None,
    run: str = "r-1",
) -> list[Event]:
    changed = {0: MATCHED, 1: SECOND} if layers is None else layers
    return [happens("matching", **fields) for fields in matching_events(run, view, changed)]


def folded(events: Iterable[Event], start: Snapshot | None = None) -> MatchingView | None:
    builder = SnapshotBuilder(start or Snapshot())
    for event in [happens("run", run="r-1", status="running"), *events]:
        builder.apply(event)
    snapshot = builder.snapshot()
    assert Snapshot.model_validate_json(snapshot.model_dump_json()) == snapshot
    return snapshot.matching


def pass_of(number: int, *widths: int) -> list[Event]:
    """Return the events of a round whose layers are matched one after another."""
    events = []
    for index, width in enumerate(widths):
        view = VIEW.model_copy(update={"round": number, "matched": index + 1})
        layer = (FIRST, SECOND)[index].model_copy(update={"atoms": width})
        events += told(view, {index: layer})
    return events


def test_matching_comes_back_from_its_events_as_lines() -> None:
    lines = [Event.from_flat(json.loads(event.line())) for event in told()]
    point = MatchRoundView(round=1, devices=4, widths=(8,))
    assert folded(lines) == VIEW.model_copy(
        update={"layers": (MATCHED, SECOND), "rounds": (point,)}
    )


def test_a_later_event_changes_its_layers_only_and_ends_the_round() -> None:
    done = VIEW.model_copy(update={"matched": 2, "growth": 1.25})
    wide = SECOND.model_copy(update={"atoms": 11})
    view = folded([*told(), *told(done, {1: wide}), *told(done, {})])
    assert view is not None
    assert (view.layers, view.growth) == ((MATCHED, wide), 1.25)
    assert [row.widths for row in view.rounds] == [(8, 11)], "one point for a round"


def test_a_round_under_way_has_the_widths_of_its_own_matching_only() -> None:
    view = folded([*told(VIEW.model_copy(update={"round": 0, "matched": 0})), *pass_of(1, 8, 11)])
    assert view is not None
    assert [row.round for row in view.rounds] == [1], "before the first round nothing is matched"
    view = folded([*pass_of(1, 8, 11), *pass_of(2, 7)])
    assert view is not None
    assert [layer.atoms for layer in view.layers] == [7, 11]
    assert [row.widths for row in view.rounds] == [(8, 11), (7,)]


def test_a_snapshot_that_was_sent_goes_on() -> None:
    whole = folded([*pass_of(1, 8, 11), *pass_of(2, 7, 10)])
    start = Snapshot(run=None, matching=folded(pass_of(1, 8, 11)))
    builder = SnapshotBuilder(Snapshot())
    builder.apply(happens("run", run="r-1", status="running"))
    later = builder.snapshot().model_copy(update={"matching": start.matching})
    assert folded(pass_of(2, 7, 10), later) == whole


def test_old_rounds_leave_the_snapshot() -> None:
    view = folded([event for number in range(1, MAX_ROUNDS + 6) for event in pass_of(number, 8)])
    assert view is not None
    assert [row.round for row in view.rounds] == list(range(6, MAX_ROUNDS + 6))
    deep = VIEW.model_copy(update={"total": MAX_LAYERS, "matched": MAX_LAYERS})
    layers = dict.fromkeys(range(MAX_LAYERS), MATCHED)
    rounds = [deep.model_copy(update={"round": number}) for number in range(1, 12)]
    view = folded([*told(deep, layers), *(each for row in rounds for each in told(row, {}))])
    assert view is not None
    assert sum(len(row.widths) for row in view.rounds) == MAX_WIDTHS


def test_another_run_begins_without_matching() -> None:
    begun = happens("run", run="r-2", status="waiting")
    assert folded([*told(), begun]) is None
    assert folded([*told(), begun, *told(run="r-1")]) is None, "an event of the run before"
    view = folded([*told(), begun, *told(run="r-2", layers={0: FIRST})])
    assert view is not None
    assert view.layers == (FIRST,)


def test_events_about_a_deep_network_fit_into_messages() -> None:
    layer = LayerMatchView(
        layer="x" * 80, local=2**40, atoms=2**40, holders=1 / 3, objective=-1 / 3e9
    )
    events = told(layers=dict.fromkeys(range(MAX_LAYERS), layer))
    assert len(events) > 1
    for event in events:
        assert len(event.line()) < MAX_CHARACTERS + 1000
        flat = json.loads(event.line())
        message = EventMessage(session="ab" * 8, number=1, event=flat)
        assert decode(encode(message), EventMessage).event == flat
    view = folded(events)
    assert view is not None
    assert len(view.layers) == MAX_LAYERS


@pytest.mark.parametrize("number", [-1, MAX_LAYERS])
def test_a_layer_that_no_network_has_changes_nothing(number: int) -> None:
    with pytest.raises(ValueError, match="no layer"):
        folded(told(layers={number: MATCHED}))


def test_a_layer_that_a_cut_log_left_out_has_no_name() -> None:
    view = folded(told(layers={1: SECOND}))
    assert view is not None
    assert [layer.layer for layer in view.layers] == ["", "fc1"]


def test_how_far_it_is_in_words() -> None:
    assert matching_in_words(VIEW) == "1 of 2 layers matched"
    done = VIEW.model_copy(update={"matched": 2, "growth": 1.256})
    assert matching_in_words(done) == "2 of 2 layers matched, growth 1.26"


def flat(events: Iterable[Event]) -> list[dict[str, Any]]:
    return [json.loads(event.line()) for event in events]


def test_a_summary_has_the_widths_by_round() -> None:
    events = told(VIEW.model_copy(update={"round": 0, "matched": 0}), {0: FIRST, 1: SECOND})
    for number in range(1, 201):
        events += pass_of(number, number, 2 * number)
    summary = RunSummary.model_validate_json(summarise(flat(events)).model_dump_json())
    found = summary.matching
    assert found is not None
    assert (found.now.round, found.now.rounds) == (200, ())
    assert [layer.atoms for layer in found.now.layers] == [200, 400]
    assert MAX_POINTS / 2 <= len(found.rounds) <= MAX_POINTS + 1
    assert (found.rounds[0].widths, found.rounds[-1].widths) == ((1, 2), (200, 400))


def test_a_summary_before_the_first_round_and_of_another_algorithm() -> None:
    start = VIEW.model_copy(update={"round": 0, "matched": 0})
    found = summarise(flat(told(start, {0: FIRST}))).matching
    assert found is not None
    assert (found.now.layers, found.rounds) == ((FIRST,), ())
    assert summarise(flat([happens("round", run="r-1", round=1)])).matching is None

"""What the journal is told of matched layers, and what a restart finds of them in the event log."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from edgefed.algorithms.base import State
from edgefed.algorithms.exchange import Exchange, Finished
from edgefed.algorithms.match_report import LayerMatch, MatchReport
from edgefed.algorithms.member import Roster
from edgefed.coordinator.event_journal import EventJournal
from edgefed.coordinator.last_run import with_last_run
from edgefed.coordinator.matching_updates import MatchingUpdates
from edgefed.coordinator.tasks import MAX_DETAIL
from edgefed.events.matching_events import MAX_LAYERS, MAX_NAME
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.model_algorithms import LAYERS, LOCAL, Layerwise, of
from tests.coordinator.test_resume import Fuse, PowerCut, cut_in_replies
from tests.coordinator.told_events import FIRST, logged, snapshot_of
from tests.run_fixture import Ticking, World, recipe, shards


def parts() -> Any:
    return shards((5, 9, 6, 4))


def finished(world: MakeWorld) -> World:
    run = world(recipe(), parts())
    assert run.engine(algorithm=of(Layerwise, run.recipe)).run().status == "finished"
    return run


def test_matching_is_told_from_the_start_and_after_each_layer(world: MakeWorld) -> None:
    run = finished(world)
    told = run.seen("matching")
    assert [(event["round"], event["matched"]) for event in told] == [
        (0, 0), (1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2),
    ]  # fmt: skip
    assert [[number for number, _ in event["layers"]] for event in told] == [
        [0, 1], [0], [1], [0], [1], [0], [1],
    ], "only the layers that changed"  # fmt: skip
    assert told[0]["layers"][0][1] == {
        "layer": "conv1", "local": LOCAL, "atoms": 0, "holders": 0.0, "objective": None,
    }  # fmt: skip
    assert told[3]["layers"][0][1]["objective"] == round(-2 / 3, 4)
    view = snapshot_of(run).matching
    assert view is not None
    assert (view.round, view.matched, view.devices, view.total) == (3, 2, 4, 2)
    assert (view.growth, view.layers[1].atoms) == (1.375, LOCAL + 3 + len("fc1"))
    assert [row.widths for row in view.rounds] == [(10, 8), (11, 9), (12, 10)]


def test_each_round_has_its_growth(world: MakeWorld) -> None:
    run = finished(world)
    assert [row["growth"] for row in run.rows] == [1.125, 1.25, 1.375]


def test_an_algorithm_without_matching_tells_nothing(world: MakeWorld) -> None:
    run = world(recipe(), parts())
    run.engine().run()
    assert run.seen("matching") == []
    assert all("growth" not in row for row in run.rows)
    logged(run)
    assert with_last_run(FIRST, run.store()).matching is None


def test_a_restart_finds_what_the_events_had_made_of_it(world: MakeWorld) -> None:
    run = finished(world)
    logged(run)
    after = with_last_run(FIRST, run.store()).matching
    assert after is not None
    assert after == snapshot_of(run).matching


def test_a_restart_passes_over_events_that_it_does_not_understand(world: MakeWorld) -> None:
    run = finished(world)
    logged(run)
    with (run.store().run_folder(run.run) / "events.jsonl").open("a") as file:
        file.write('{"kind": "matching", "time": "", "total": "many", "layers": []}\n')
        file.write('{"kind": "experts", "time": ""}\n{"kind": "matching", "time": ""}\n')
    after = with_last_run(FIRST, run.store())
    assert after.experts is None
    assert after.matching == snapshot_of(run).matching


def test_a_run_that_is_killed_between_two_layers_tells_the_same(world: MakeWorld) -> None:
    whole, cut = finished(world), world(recipe(), parts())
    with pytest.raises(PowerCut):
        cut_in_replies(cut, Fuse(14), of(Layerwise, cut.recipe))
    assert len(cut.seen("matching")) == 1 + 3
    again = len(cut.events)
    cut.engine(algorithm=of(Layerwise, cut.recipe)).run()
    (first, *_) = (event.fields for event in cut.events[again:] if event.kind == "matching")
    assert (first["round"], first["matched"], len(first["layers"])) == (2, 1, 2)
    asked = [event.fields for event in cut.events[again:] if event.kind == "exchange"]
    assert asked[0]["detail"] == "fc1, 2 of 2", "the open exchange is put again as it was"
    assert snapshot_of(cut).matching == snapshot_of(whole).matching


def test_the_exchanges_of_a_round_say_which_layer_they_match(world: MakeWorld) -> None:
    run = finished(world)
    asked = run.seen("exchange", phase="broadcast", round=2, question="layer")
    assert [event["detail"] for event in asked] == [
        f"{name}, {number} of {len(LAYERS)}" for number, name in enumerate(LAYERS, 1)
    ]
    assert {event["detail"] for event in run.seen("exchange", phase="evaluate")} == {""}
    ended = snapshot_of(run).run
    assert ended is not None
    assert ended.question_in_words == "layer"


def fedma(world: MakeWorld, **settings: Any) -> World:
    """Return a finished run of FedMA with two hidden layers."""
    chosen = recipe(
        model={"name": "mlp", "hidden": [4, 3]},
        algorithm={"name": "fedma", **settings},
        rounds={"count": 2},
    )
    run = world(chosen, parts())
    assert run.engine().run().status == "finished"
    return run


def test_fedma_tells_each_layer_and_keeps_those_of_the_round_before(world: MakeWorld) -> None:
    run = fedma(world)
    asked = run.seen("exchange", phase="broadcast", round=2)
    assert [f"{event['question']} {event['detail']}" for event in asked] == [
        "layer fc1, 1 of 3", "layer fc2, 2 of 3", "fit out, 3 of 3",
    ]  # fmt: skip
    under_way = run.seen("matching", round=2, matched=1)
    assert [[number for number, _ in event["layers"]] for event in under_way] == [[0]]
    view = snapshot_of(run).matching
    assert view is not None
    assert [layer.layer for layer in view.layers] == ["fc1", "fc2"]
    assert all(layer.atoms >= layer.local for layer in view.layers)
    assert [row.widths for row in view.rounds][-1] == tuple(each.atoms for each in view.layers)


def test_fedma_without_retraining_asks_for_all_layers_at_once(world: MakeWorld) -> None:
    run = fedma(world, retrain_epochs=0)
    asked = run.seen("exchange", phase="broadcast")
    assert [(event["question"], event["detail"]) for event in asked] == [("fit", "")] * 2
    assert [(event["round"], event["matched"]) for event in run.seen("matching")] == [
        (0, 0), (1, 2), (2, 2),
    ]  # fmt: skip


class Lengthy(Layerwise):
    """Says too much of its exchanges."""

    def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
        planned = super().plan(state, roster, seed)
        if isinstance(planned, Finished):
            return planned
        return replace(planned, detail="x" * 2 * MAX_DETAIL)


def test_a_detail_and_a_layer_are_told_in_bounded_words(world: MakeWorld) -> None:
    run = world(recipe(rounds={"count": 1}), parts())
    run.engine(algorithm=of(Lengthy, run.recipe)).run()
    asked = run.seen("exchange", question="layer")
    assert {len(event["detail"]) for event in asked} == {MAX_DETAIL}
    told = told_of(MatchReport(1, (LayerMatch("y" * 1000, 4),) * (MAX_LAYERS + 5), 1))
    rows = [row for event in told for row in event["layers"]]
    assert (len(rows), told[0]["total"]) == (MAX_LAYERS, MAX_LAYERS + 5)
    assert {len(row["layer"]) for _, row in rows} == {MAX_NAME}


class Telling(Layerwise):
    """Reports what a test says."""

    report = MatchReport()

    def match_report(self, state: State) -> MatchReport:
        del state
        return self.report


def told_of(*reports: MatchReport) -> list[dict[str, Any]]:
    """Return the events that these reports make, one after another."""
    algorithm = of(Telling, recipe())
    assert isinstance(algorithm, Telling)
    journal, told = EventJournal("tests", Ticking()), list[dict[str, Any]]()
    journal.listen(lambda event, _: told.append(event.fields))
    updates = MatchingUpdates("r-1", algorithm, journal)
    for report in reports:
        algorithm.report = report
        updates.tell(State(0, {}, {}))
    return told


def test_what_did_not_change_is_not_told_again() -> None:
    layer = LayerMatch("fc1", 4, 6, 2.0, -1.0)
    report = MatchReport(1, (layer,), 1, 3, None)
    grown = MatchReport(1, (layer,), 1, 3, 1.5)
    told = told_of(MatchReport(), report, report, grown)
    assert [(event["growth"], len(event["layers"])) for event in told] == [(None, 1), (1.5, 0)]


def test_a_number_that_json_cannot_hold_is_no_number() -> None:
    layer = LayerMatch("fc1", 4, 6, math.nan, math.inf)
    (event,) = told_of(MatchReport(1, (layer,), 1, 3, math.nan))
    assert event["growth"] is None
    assert (event["layers"][0][1]["holders"], event["layers"][0][1]["objective"]) == (0.0, None)

"""The tables of experts and matched layers in a run: what is sent, and what a restart finds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange, Finished
from edgefed.algorithms.interface.member import Roster
from edgefed.algorithms.matched.matched_layers import LayerMatch, matched_table
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.exchanges.contributions import CONTRIBUTIONS
from edgefed.coordinator.exchanges.tasks import MAX_DETAIL
from edgefed.coordinator.process.last_run import with_last_run
from edgefed.coordinator.rounds.phase_seconds import PHASES
from edgefed.events.base.method_tables import TableView, table_named
from edgefed.events.methods.expert_tables import EXPERTS, MIXTURES, experts_json
from edgefed.events.methods.matching_table import LAYERS as MATCHED
from edgefed.events.methods.matching_table import matching_json
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.exchanges.test_resume import Fuse, PowerCut, cut_in_replies
from tests.coordinator.model_algorithms import LAYERS, LOCAL, Layerwise, of
from tests.coordinator.told_events import FIRST, logged, snapshot_of
from tests.run_fixture import CLASSES, World, recipe, shards


def parts() -> Any:
    return shards((5, 9, 6, 4), tested=3)


def moe(**settings: Any) -> Recipe:
    return recipe(algorithm={"name": "fedmoe", "experts": 3, **settings})


def of_method(run: World) -> tuple[TableView, ...]:
    """Return the tables without those of fleet and engine."""
    tables = snapshot_of(run).tables
    return tuple(view for view in tables if view.table.name not in (CONTRIBUTIONS, PHASES))


def test_experts_are_sent_from_the_start_and_after_each_merge(world: MakeWorld) -> None:
    run = world(moe(server_learning_rate=0.3), parts())
    assert run.engine().run().status == "finished"
    loads = run.seen("table", name=EXPERTS)
    assert [event["round"] for event in loads] == [0, 1, 2, 3]
    assert [len(event["rows"]) for event in run.seen("table", name=MIXTURES)] == [0, 4, 4, 4]
    found = experts_json(snapshot_of(run).tables, {})
    assert (found["experts"], found["round"], found["condition"]) == (3, 3, "label")
    assert [row["value"] for row in found["table"]] == [str(label) for label in range(CLASSES)]
    assert sum(found["load"]) == pytest.approx(1, abs=1e-3)


def test_an_algorithm_without_tables_sends_none(world: MakeWorld) -> None:
    run = world(recipe(), parts())
    run.engine().run()
    assert of_method(run) == ()
    assert all("growth" not in row for row in run.rows)


def finished(world: MakeWorld) -> World:
    run = world(recipe(), parts())
    assert run.engine(algorithm=of(Layerwise, run.recipe)).run().status == "finished"
    return run


def widths(run: World) -> list[list[int]]:
    (view,) = of_method(run)
    return [point["widths"] for point in matching_json(view, {})["history"]]


def test_layers_are_sent_from_the_start_and_after_each_matching(world: MakeWorld) -> None:
    run = finished(world)
    told = run.seen("table", name=MATCHED)
    assert [event["round"] for event in told] == [0, 1, 1, 2, 2, 3, 3]
    assert [[key for key, *_ in event["rows"]] for event in told] == [
        ["conv1", "fc1"], ["conv1"], ["fc1"], ["conv1"], ["fc1"], ["conv1"], ["fc1"],
    ], "only the layers that changed"  # fmt: skip
    assert told[0]["rows"][0] == ["conv1", LOCAL, None, None, None, None, None]
    assert told[3]["rows"][0][5] == round(-2 / 3, 4)
    (view,) = of_method(run)
    found = matching_json(view, {})
    assert (found["round"], found["matched"], found["devices"], found["total"]) == (3, 2, 4, 2)
    assert (found["growth"], found["layers"][1]["atoms"]) == (1.375, LOCAL + 3 + len("fc1"))
    assert widths(run) == [[10, 8], [11, 9], [12, 10]]
    assert [row["growth"] for row in run.rows] == [1.125, 1.25, 1.375]
    assert [row["matched_layers.conv1"] for row in run.rows] == [10, 11, 12]


def test_a_restart_finds_what_the_events_had_made_of_them(world: MakeWorld) -> None:
    run = finished(world)
    logged(run)
    with (run.store().run_folder(run.run) / "events.jsonl").open("a") as file:
        file.write('{"kind": "matching", "time": "", "total": "many", "layers": []}\n')
        file.write('{"kind": "table", "time": ""}\n{"kind": "experts", "time": ""}\n')
    assert with_last_run(FIRST, run.store()).tables == snapshot_of(run).tables != ()


def test_a_run_that_is_killed_between_two_layers_sends_the_same(world: MakeWorld) -> None:
    whole, cut = finished(world), world(recipe(), parts())
    with pytest.raises(PowerCut):
        cut_in_replies(cut, Fuse(14), of(Layerwise, cut.recipe))
    assert len(cut.seen("table", name=MATCHED)) == 1 + 3
    again = len(cut.events)
    cut.engine(algorithm=of(Layerwise, cut.recipe)).run()
    (first, *_) = (event.fields for event in cut.events[again:] if event.kind == "table")
    assert (first["round"], first["anew"], len(first["rows"])) == (2, True, 2)
    assert of_method(cut) == of_method(whole)


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


def test_fedma_shows_each_layer_and_keeps_those_of_the_round_before(world: MakeWorld) -> None:
    run = fedma(world)
    asked = run.seen("exchange", phase="broadcast", round=2)
    assert [f"{event['question']} {event['detail']}" for event in asked] == [
        "layer fc1, 1 of 3", "layer fc2, 2 of 3", "fit out, 3 of 3",
    ]  # fmt: skip
    of_round = run.seen("table", name=MATCHED, round=2)
    assert [[key for key, *_ in event["rows"]] for event in of_round][:2] == [["fc1"], ["fc2"]]
    found = table_named(snapshot_of(run).tables, MATCHED)
    assert found is not None
    shown = matching_json(found, {})
    assert [layer["layer"] for layer in shown["layers"]] == ["fc1", "fc2"]
    assert all(layer["atoms"] >= layer["local"] for layer in shown["layers"])
    assert widths(run)[-1] == [layer["atoms"] for layer in shown["layers"]]
    assert all(row["growth"] >= 1 for row in run.rows)


class Lengthy(Layerwise):
    """Says too much of its exchanges."""

    def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
        planned = super().plan(state, roster, seed)
        if isinstance(planned, Finished):
            return planned
        return replace(planned, detail="x" * 2 * MAX_DETAIL)


def test_a_detail_is_told_in_bounded_words(world: MakeWorld) -> None:
    run = world(recipe(rounds={"count": 1}), parts())
    run.engine(algorithm=of(Lengthy, run.recipe)).run()
    asked = run.seen("exchange", question="layer")
    assert {len(event["detail"]) for event in asked} == {MAX_DETAIL}


def test_a_number_that_json_cannot_hold_is_no_number() -> None:
    layer = LayerMatch("fc1", 4, 6, math.nan, math.inf)
    table = matched_table([layer], 1, 1, 3, math.nan)
    assert table.rows[0].cells == (4, 6, 1.5, 0.0, None, 1)
    assert "growth" not in table.series

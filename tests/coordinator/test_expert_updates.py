"""What the journal is told of experts, and what a restart finds of them in the event log."""

from __future__ import annotations

import math
from typing import Any

import pytest

from edgefed.algorithms.base import State
from edgefed.algorithms.expert_report import DeviceMixture, ExpertReport
from edgefed.algorithms.fedmoe import FedMoe
from edgefed.algorithms.wrapped_algorithm import complete
from edgefed.config.recipe import Recipe
from edgefed.coordinator.event_journal import EventJournal
from edgefed.coordinator.expert_updates import (
    LEAST_CHANGE,
    ExpertUpdates,
    experts_view,
    mixture_view,
)
from edgefed.coordinator.last_run import with_last_run
from edgefed.events.expert_events import MAX_CELLS
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.test_resume import Fuse, PowerCut, cut_in_replies
from tests.coordinator.told_events import FIRST, logged, snapshot_of
from tests.run_fixture import CLASSES, Ticking, recipe, shards

EXPERTS = 3


def plan(**settings: Any) -> Recipe:
    return recipe(algorithm={"name": "fedmoe", "experts": EXPERTS, **settings})


def parts() -> Any:
    return shards((5, 9, 6, 4), tested=3)


def test_experts_are_told_from_the_start_and_after_each_merge(world: MakeWorld) -> None:
    run = world(plan(server_learning_rate=0.3), parts())
    assert run.engine().run().status == "finished"
    told = run.seen("experts")
    assert [event["round"] for event in told] == [0, 1, 2, 3]
    assert [len(event["mixtures"]) for event in told] == [0, 4, 4, 4]
    assert [row[0] for row in told[0]["rows"]] == list(range(CLASSES))
    assert all(event["rows"] for event in told[1:]), "the table has moved"
    view = snapshot_of(run).experts
    assert view is not None
    assert (view.experts, view.round, view.condition, view.labels) == (3, 3, "label", CLASSES)
    assert len(view.table) == CLASSES
    assert sum(view.load) == pytest.approx(1, abs=1e-3)


def test_a_table_that_hardly_moves_is_not_told_again(world: MakeWorld) -> None:
    run = world(plan(server_learning_rate=1e-4, table_learning_rate=0.0), parts())
    run.engine().run()
    assert [len(event["rows"]) for event in run.seen("experts")] == [CLASSES, 0, 0, 0]


def test_an_algorithm_without_experts_tells_nothing(world: MakeWorld) -> None:
    run = world(recipe(), shards((5, 9)))
    run.engine().run()
    assert run.seen("experts") == []
    logged(run)
    assert with_last_run(FIRST, run.store()).experts is None


def test_a_restart_finds_what_the_events_had_made_of_them(world: MakeWorld) -> None:
    run = world(plan(), parts())
    run.engine().run()
    logged(run)
    before, after = snapshot_of(run), with_last_run(FIRST, run.store())
    assert after.experts is not None
    assert (after.experts, after.mixtures) == (before.experts, before.mixtures)
    assert len(after.experts.rounds) == 4


def test_a_killed_run_tells_the_same_experts(world: MakeWorld) -> None:
    whole, cut = (world(plan(), parts()) for _ in range(2))
    whole.engine().run()
    with pytest.raises(PowerCut):
        cut_in_replies(cut, Fuse(6))
    assert [event["round"] for event in cut.seen("experts")] == [0, 1]
    cut.engine().run()
    assert [event["round"] for event in cut.seen("experts")] == [0, 1, 1, 2, 3]
    one, other = snapshot_of(whole), snapshot_of(cut)
    assert one.experts is not None
    assert other.experts is not None
    assert one.experts.model_dump(exclude={"table"}) == other.experts.model_dump(exclude={"table"})
    assert one.mixtures == other.mixtures
    for row, again in zip(one.experts.table, other.experts.table, strict=True):
        assert row == pytest.approx(again, abs=2 * LEAST_CHANGE)


class Telling(FedMoe):
    """Reports what a test says."""

    report = ExpertReport()

    def expert_report(self, state: Any) -> ExpertReport:
        del state
        return self.report


def test_a_number_that_json_cannot_hold_ends_no_run(world: MakeWorld) -> None:
    run = world(plan(), parts())
    algorithm = Telling(FedMoe.Settings(), run.recipe.training, run.recipe.rounds)  # type: ignore[arg-type]
    bad = (math.nan, math.inf, 0.5)
    mixture = DeviceMixture("device-00", 3, 1, bad, (2,))
    algorithm.report = ExpertReport(
        3, 1, "label", (bad,), (mixture,), bad, math.nan, (), False, bad
    )
    run.engine(algorithm=complete(algorithm)).run()
    (event,) = run.seen("experts")
    assert event["load"] == [0.0, 0.0, 0.5]
    assert event["divergence"] == [None, None, 0.5]
    assert event["mixtures"][0]["shares"] == [0.0, 0.0, 0.5]


def test_of_a_large_table_the_first_rows_are_told() -> None:
    row = (1 / 64,) * 64
    report = ExpertReport(64, 1, "label", (row,) * 1000, load=row, entropy=4.1589)
    view = experts_view(report)
    assert (len(view.table), view.labels) == (MAX_CELLS // 64, 1000)
    assert view.table[0][0] == round(1 / 64, 4)


def test_a_device_that_has_not_answered_again_is_not_told_again(world: MakeWorld) -> None:
    run = world(plan(), parts())
    algorithm = Telling(FedMoe.Settings(), run.recipe.training)  # type: ignore[arg-type]
    journal, state = EventJournal("tests", Ticking()), State(0, {}, {})
    told: list[dict[str, Any]] = []
    journal.listen(lambda event, _: told.append(event.fields))
    updates = ExpertUpdates("r-1", algorithm, journal)
    one, other = (DeviceMixture(name, 3, 1, (1.0, 0.0), (0,)) for name in "ab")
    algorithm.report = ExpertReport(2, 1, "device", (), (one, other), (1.0, 0.0), 0.0)
    updates.tell(state)
    updates.tell(state)
    moved = DeviceMixture("b", 3, 2, (0.5, 0.5), (0, 1))
    algorithm.report = ExpertReport(2, 2, "device", (), (one, moved), (0.5, 0.5), 0.7)
    updates.tell(state)
    assert [[row["device"] for row in event["mixtures"]] for event in told] == [["a", "b"], ["b"]]
    assert told[1]["mixtures"][0] == mixture_view(moved).model_dump(mode="json")

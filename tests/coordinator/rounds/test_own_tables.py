"""The tables of fleet and engine: they count and measure, survive a restart, and are shown."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from edgefed.algorithms.interface.base import State
from edgefed.api.rounds import metrics_of
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.exchanges.contributions import COLUMNS, CONTRIBUTIONS
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.reports.logged_tables import logged_tables
from edgefed.coordinator.reports.table_updates import TableUpdates
from edgefed.coordinator.rounds.phase_seconds import MEASURED, PHASES, PhaseSeconds
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.events.base.method_tables import (
    MAX_CELLS,
    Column,
    TableView,
    method_table,
    table_named,
)
from edgefed.events.base.model import Phase
from edgefed.process.clock import SystemClock
from edgefed.report.page import report
from edgefed.report.run_data import run_data_of_folder
from edgefed.simulator.run import Simulation
from tests.cli.commands import edgefed
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.exchanges.test_resume import Fuse, PowerCut, cut_in_replies
from tests.coordinator.fleets import TamperedFleet, forged, silent, told
from tests.coordinator.model_algorithms import Layerwise, of
from tests.coordinator.told_events import logged, snapshot_of
from tests.run_fixture import Ticking, World, recipe, shards

SIZES = (5, 9, 6, 4)
FIRST, SECOND, THIRD, LAST = (f"device-0{number}" for number in range(4))


def table_of(run: World, name: str = CONTRIBUTIONS) -> TableView:
    view = table_named(snapshot_of(run).tables, name)
    assert view is not None
    return view


def counts(run: World) -> dict[str, tuple[Any, ...]]:
    """Return tasks asked, answered, late and refused, and samples, by device."""
    return {row.key: row.cells[:5] for row in table_of(run).table.rows}


def test_every_device_has_its_tasks_and_samples_after_each_round(world: MakeWorld) -> None:
    run = world(recipe(), shards(SIZES, tested=3))
    run.engine().run()
    sent = run.seen("table", name=CONTRIBUTIONS)
    assert [event["round"] for event in sent] == [1, 2, 3]
    places = {
        device: 3 * size for device, size in zip((FIRST, SECOND, THIRD, LAST), SIZES, strict=True)
    }
    assert counts(run) == {device: (3, 3, 0, 0, samples) for device, samples in places.items()}
    table = table_of(run).table
    assert [row.cells[5] for row in table.rows] == [0.208, 0.375, 0.25, 0.167]
    assert table.series == {"samples": 72, "devices": 4}
    assert table.verdict == "4 devices contributed 72 samples"


def test_tests_and_preparatory_exchanges_do_not_count(world: MakeWorld) -> None:
    chosen = recipe(algorithm={"name": "fedmix"}, evaluation={"on": "devices"})
    run = world(chosen, shards(SIZES, tested=3))
    run.engine().run()
    asked = {event["question"] for event in run.seen("exchange", phase="broadcast")}
    assert asked == {"mean", "fit", "evaluate"}
    assert {cells[:2] for cells in counts(run).values()} == {(3, 3)}


def test_a_device_that_is_silent_or_refused_contributes_nothing(world: MakeWorld) -> None:
    run = world(recipe(rounds={"quorum": 0.5}), shards(SIZES))
    wrong = forged(SECOND, told(samples=-1))

    def tamper(asked: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        return silent(LAST)(asked, wrong(asked, replies))

    run.engine(TamperedFleet(run.devices, tamper)).run()
    assert counts(run)[SECOND] == (3, 0, 0, 3, 0)
    assert counts(run)[LAST] == (3, 0, 3, 0, 0)
    assert counts(run)[FIRST] == (3, 3, 0, 0, 15)
    table = table_of(run).table
    assert table.verdict == f"2 of 4 devices contributed nothing: {SECOND}, {LAST}"
    assert table.series["devices"] == 2


def test_an_exchange_that_is_not_merged_counts_without_its_samples(world: MakeWorld) -> None:
    run = world(recipe(rounds={"count": 1, "quorum": 1.0, "retries": 1}), shards(SIZES))
    lost = [LAST]

    def tamper(_: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        gone = [lost.pop()] if lost else []
        return (each for each in replies if each.reply.device not in gone)

    run.engine(TamperedFleet(run.devices, tamper)).run()
    assert counts(run)[LAST] == (2, 1, 1, 0, 4)
    assert counts(run)[FIRST] == (2, 2, 0, 0, 5)


def test_counts_and_seconds_go_on_after_a_restart(world: MakeWorld) -> None:
    whole, cut = (world(recipe(), shards(SIZES)) for _ in range(2))
    whole.engine().run()
    with pytest.raises(PowerCut):
        cut_in_replies(cut, Fuse(6))
    logged(cut)
    again = len(cut.events)
    cut.engine().run()
    assert counts(cut) == counts(whole)
    (first, *_) = (
        event.fields
        for event in cut.events[again:]
        if event.kind == "table" and event.fields["name"] == CONTRIBUTIONS
    )
    assert (first["round"], first["anew"], len(first["rows"])) == (1, True, len(SIZES))
    history = table_of(cut, PHASES).history
    for phase, cells in seconds(cut).items():
        assert cells[3] == sum(point.values[phase] or 0 for point in history), "of all rounds"
    assert [point.round for point in history] == [1, 2, 3]


def test_another_run_of_the_same_fleet_begins_anew(world: MakeWorld) -> None:
    run = world(recipe(), shards(SIZES))
    run.engine().run()
    assert run.devices.contributions.table() is not None
    run.devices.contributions.begin(())
    assert run.devices.contributions.table() is None


def test_a_log_of_other_columns_or_without_numbers_is_passed_over(world: MakeWorld) -> None:
    run = world(recipe(), shards(SIZES))
    with pytest.raises(PowerCut):
        cut_in_replies(run, Fuse(6))
    for event in run.events:
        if event.kind == "table" and event.fields["name"] == CONTRIBUTIONS:
            event.fields["rows"][0][1] = "many"
        elif event.kind == "table":
            event.fields["columns"][0]["name"] = "other"
    logged(run)
    run.engine().run()
    assert [cells[0] for cells in counts(run).values()] == [2, 3, 3, 3]
    history = table_of(run, PHASES).history
    for phase, cells in seconds(run).items():
        assert cells[3] == sum(point.values[phase] or 0 for point in history[1:]), "of the last two"


def seconds(run: World) -> dict[str, tuple[Any, ...]]:
    return {row.key: row.cells for row in table_of(run, PHASES).table.rows}


class Steps:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.at = 0.0

    def monotonic(self) -> float:
        return self.at

    def now(self) -> Any:
        raise NotImplementedError


def test_each_phase_has_its_seconds() -> None:
    clock = Steps()
    phases = PhaseSeconds(clock)
    assert phases.table() is None

    for number, slower in ((1, 2.0), (2, 1.0)):
        waits: list[tuple[Phase, float]]
        waits = [("select", slower), ("collect", 8.0), ("merge", slower)]
        for phase, wait in waits:
            phases.enter(phase)
            clock.at += wait
        if number == 2:
            phases.enter("evaluate")
            clock.at += 7.0
        phases.end_round(number)
        clock.at += 100.0  # paused
    table = phases.table()
    assert table is not None
    assert tuple(row.key for row in table.rows) == MEASURED
    assert {row.key: row.cells[:4] for row in table.rows} == {
        "select": (1.0, 1.5, 2.0, 3.0),
        "collect": (8.0, 8.0, 8.0, 16.0),
        "merge": (1.0, 1.5, 2.0, 3.0),
        "evaluate": (7.0, 3.5, 7.0, 7.0),
    }
    assert [row.cells[4] for row in table.rows] == pytest.approx(
        [3 / 29, 16 / 29, 3 / 29, 7 / 29], abs=1e-4
    )
    assert table.verdict == "collect took 55% of the time of 2 rounds"
    assert table.series == {"select": 1.0, "collect": 8.0, "merge": 1.0, "evaluate": 7.0}


def test_the_phases_of_a_run_are_those_that_it_has(world: MakeWorld) -> None:
    run = world(recipe(evaluation={"every": 2, "on": "devices"}), shards(SIZES, tested=3))
    run.engine().run()
    assert [event["round"] for event in run.seen("table", name=PHASES)] == [1, 2, 3]
    assert all(cells[3] > 0 for cells in seconds(run).values())
    tested = [row["system.phases.evaluate"] for row in run.rows]
    assert tested[1] > tested[0]
    assert tested[2] > tested[0]


def test_secret_cohorts_are_not_named(world: MakeWorld) -> None:
    chosen = recipe(
        privacy={"mechanism": "central", "noise_multiplier": 1.0, "clip": 1.0, "population": 4},
        rounds={"cohort": 2, "min_devices": 4},
    )
    run = world(chosen, shards(SIZES))
    record = run.engine().run()
    assert record.status == "finished", record.reason
    assert {event["name"] for event in run.seen("table")} == {PHASES}


def test_a_methods_table_of_the_same_name_is_shown_instead(world: MakeWorld) -> None:
    class Named(Layerwise):
        def view(self, state: Any) -> Any:
            rows = [("k", [float(state.round)])]
            return (method_table(PHASES, [Column(name="v")], rows),)

    run = world(recipe(), shards(SIZES))
    run.engine(algorithm=of(Named, run.recipe)).run()
    assert [row.key for row in table_of(run, PHASES).table.rows] == ["k"]
    assert table_of(run).table.rows


def test_a_large_fleet_has_as_many_rows_as_may_be_sent(world: MakeWorld) -> None:
    most = MAX_CELLS // (len(COLUMNS) + 1)
    rows = [(f"d-{number:05d}", (1, 1, 0, 0, number, 0.0)) for number in range(most + 3)]
    before = TableView(table=method_table(CONTRIBUTIONS, COLUMNS, rows, key="device"))
    run, journal = world(), EventJournal("tests", Ticking())
    run.devices.contributions.begin((before,))
    journal.emit("run", run="r-1", status="running")
    updates = TableUpdates("r-1", of(Layerwise, run.recipe), journal)
    updates.tell_own(1, run.devices.own_tables(), 0.0)
    (view,) = journal.snapshot.tables
    assert (len(view.table.rows), view.left_out) == (most, 3)
    assert view.table.verdict == f"1 of {most + 3} devices contributed nothing: d-00000"


def test_short_rounds_share_an_event(world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    run, journal, clock = world(), EventJournal("tests", Ticking()), Steps()
    updates, phases = TableUpdates("r-1", of(Layerwise, run.recipe), journal), PhaseSeconds(clock)
    journal.emit("run", run="r-1", status="running")

    def rounds_sent(first: int, seconds: float) -> list[int]:
        for number in range(first, first + 5):
            phases.enter("collect")
            clock.at += seconds
            phases.end_round(number)
            updates.tell_own(number, (phases,), clock.at)
            measured = updates.round_metrics(State(number, {}, {}))
            assert measured["system.phases.collect"] == seconds
        (view,) = journal.snapshot.tables
        return [point.round for point in view.history]

    updates.tell_own(0, (), 0.0)
    made = Mock(wraps=phases.table)
    monkeypatch.setattr(phases, "table", made)
    assert rounds_sent(1, 0.25) == [1, 5]
    assert made.call_count == 2, "a table is made only when it is sent"
    assert rounds_sent(6, 0.125) == [1, 5]
    updates.flush()
    updates.flush()
    assert rounds_sent(11, 2.0) == [1, 5, 10, 11, 12, 13, 14, 15]


def simulated(folder: Path) -> Path:
    chosen = Recipe.model_validate(
        {
            "model": {"name": "mlp", "hidden": [4]},
            "data": {"limit": 200},
            "rounds": {"count": 2},
            "simulation": {"devices": 3, "engine": "sequential"},
        }
    )
    result = Simulation(chosen, folder / "simulations", SystemClock()).run()
    assert result.record.status == "finished", result.record.reason
    return result.folder


def test_they_appear_in_commands_report_and_metrics(tmp_path: Path) -> None:
    folder = simulated(tmp_path)
    shown = edgefed("run", "tables", "--local", state=tmp_path).out
    assert "contributions, round 2, 3 devices contributed" in shown
    assert "DEVICE" in shown
    assert "PHASE" in shown
    tables = edgefed("run", "tables", folder, "--json", state=tmp_path).json["tables"]
    assert [table["name"] for table in tables] == [CONTRIBUTIONS, PHASES]
    assert [point["round"] for point in tables[1]["history"]] == [1, 2]
    page = report(run_data_of_folder(folder))
    assert "<h2>contributions</h2>" in page
    assert "<h2>phases</h2>" in page
    rows = list(csv.DictReader(io.StringIO((folder / "metrics.csv").read_text())))
    assert [row["system.contributions.devices"] for row in rows] == ["3.0", "3.0"]
    assert all(float(row["system.phases.collect"]) > 0 for row in rows)
    last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert not any("system" in name for name in metrics_of(last)), "it measures the model"
    assert [view.table.name for view in logged_tables(folder)] == [CONTRIBUTIONS, PHASES]

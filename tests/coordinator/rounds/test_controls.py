"""Orders of an operator: pause, resume, step, finish, abort."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import pytest

from edgefed.algorithms.interface.member import Roster
from edgefed.coordinator.exchanges.fleet import Fleet
from edgefed.coordinator.rounds import run_beginning
from edgefed.coordinator.rounds.run_controls import RunControls
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.errors import UsageError
from edgefed.events.base.model import Event
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.fleets import TamperedFleet
from tests.run_fixture import World, recipe, shards

PATIENCE = 60.0
"""Seconds after which a wait has failed; no test asserts how long anything takes."""


class WaitedFleet(TamperedFleet):
    """Notes each time that somebody waits for devices."""

    def __init__(self, inner: Fleet) -> None:
        super().__init__(inner)
        self.waited: queue.Queue[int] = queue.Queue()

    def wait_for(self, devices: int, timeout: float, stop: Callable[[], bool]) -> Roster:
        self.waited.put(devices)
        return super().wait_for(devices, timeout, stop)


class AtWork:
    """An engine in a thread of its own, and the statuses that it announces."""

    def __init__(self, here: World, controls: RunControls) -> None:
        self.controls = controls
        fleet = WaitedFleet(here.devices)
        self.waited = fleet.waited
        self.fleet: TamperedFleet = fleet
        self._statuses: queue.Queue[str] = queue.Queue()
        self._ended: queue.Queue[RunRecord] = queue.Queue()
        engine = here.engine(self.fleet, controls, listener=self._hear)
        self._thread = threading.Thread(target=lambda: self._ended.put(engine.run()), daemon=True)
        self._thread.start()

    def _hear(self, event: Event) -> None:
        if event.kind == "run":
            self._statuses.put(event.fields["status"])

    def await_status(self, status: str) -> None:
        while self._statuses.get(timeout=PATIENCE) != status:
            pass

    def end(self) -> RunRecord:
        record = self._ended.get(timeout=PATIENCE)
        self._thread.join(timeout=PATIENCE)
        return record


def test_a_run_that_begins_paused_asks_nobody_until_it_is_resumed(world: MakeWorld) -> None:
    here = world()
    working = AtWork(here, RunControls(paused=True))
    working.await_status("paused")
    assert working.fleet.asked == []
    assert here.record.status == "paused"
    assert working.controls.order("resume") == "running"
    assert working.end().status == "finished"
    assert here.seen("run")[-1]["weights_digest"] == undisturbed(world)


def test_each_step_is_one_exchange(world: MakeWorld) -> None:
    here = world()
    working = AtWork(here, RunControls(paused=True))
    working.await_status("paused")
    for steps in (1, 2):
        working.controls.order("step")
        working.await_status("running")
        working.await_status("paused")
        assert len(working.fleet.asked) == steps
        assert here.record.round == steps
    working.controls.order("step")
    assert working.end().status == "finished"
    assert here.record.weights_digest == undisturbed(world)


def test_a_pause_waits_for_the_exchange(world: MakeWorld) -> None:
    here = world()
    controls = RunControls()
    engine_told: list[str] = []

    def pause(event: Event) -> None:
        if event.kind == "reply" and not engine_told:
            engine_told.append(controls.order("pause"))
        if event.kind == "run" and event.fields["status"] == "paused":
            controls.stop_process()

    here.engine(controls=controls, listener=pause).run()
    assert engine_told == ["pausing after this exchange"]
    assert [row["replies"] for row in here.rows] == [4]
    assert here.record.status == "paused"
    assert here.engine().run().weights_digest == undisturbed(world)


def test_finish_ends_the_run_after_the_round_with_a_test(world: MakeWorld) -> None:
    here = world(recipe(evaluation={"every": 0}))
    controls = RunControls()
    record = here.engine(controls=controls, listener=when(here, "reply", 2, controls, "finish"))
    ended = record.run()
    assert (ended.status, ended.round, ended.reason) == ("finished", 2, "")
    assert [row["accuracy"] is None for row in here.rows] == [True, False]
    assert (here.folder / "runs" / here.run / "model.safetensors").exists()


def test_finish_lets_a_paused_run_go_on_to_its_end(world: MakeWorld) -> None:
    here = world()
    working = AtWork(here, RunControls(paused=True))
    working.await_status("paused")
    working.controls.order("finish")
    assert (working.end().status, here.record.round) == ("finished", 1)


@pytest.mark.parametrize("kind", ["run", "round", "exchange", "reply", "scored"])
def test_an_abort_ends_the_run_at_once_wherever_it_is(world: MakeWorld, kind: str) -> None:
    here = world(recipe(evaluation={"on": "both"}), shards((5, 9, 6), tested=4))
    controls = RunControls()
    listener = when(here, kind, 0, controls, "abort")
    record = here.engine(controls=controls, listener=listener).run()
    assert (record.status, record.reason) == ("aborted", "by the operator")
    assert here.record == record
    assert here.seen("run")[-1]["status"] == "aborted"
    assert len(here.rows) <= 1


def test_an_abort_ends_a_pause(world: MakeWorld) -> None:
    working = AtWork(world(), RunControls(paused=True))
    working.await_status("paused")
    working.controls.order("abort")
    assert working.end().status == "aborted"


def test_a_paused_run_waits_for_its_devices_without_end(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_beginning, "PAUSED_LOOK", 0.01)
    here = world(recipe(rounds={"min_devices": 9}))
    working = AtWork(here, RunControls(paused=True))
    working.waited.get(timeout=PATIENCE)
    working.waited.get(timeout=PATIENCE)
    assert here.record.status == "waiting"
    working.controls.order("resume")
    record = working.end()
    assert (record.status, record.error) == ("failed", "run.devices")


def test_a_run_that_is_finished_before_it_begins_is_aborted(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_beginning, "PAUSED_LOOK", 0.01)
    here = world(recipe(rounds={"min_devices": 9}))
    working = AtWork(here, RunControls(paused=True))
    working.waited.get(timeout=PATIENCE)
    working.controls.order("finish")
    assert working.end().status == "aborted"
    assert working.fleet.asked == []


def test_a_stop_of_the_process_ends_a_pause_and_decides_nothing(world: MakeWorld) -> None:
    here = world()
    working = AtWork(here, RunControls(paused=True))
    working.await_status("paused")
    working.controls.stop_process()
    assert working.end().status == here.record.status == "paused"


def test_after_an_abort_no_reply_is_merged(world: MakeWorld) -> None:
    here = world()
    controls = RunControls()
    record = here.engine(controls=controls, listener=when(here, "reply", 1, controls, "abort"))
    assert record.run().status == "aborted"
    assert len(here.seen("reply")) == 1
    checkpoint = here.stores[0].checkpoint(here.run)
    assert checkpoint is not None
    assert checkpoint.state.round == 0


def test_an_unknown_order_is_refused() -> None:
    controls = RunControls()
    with pytest.raises(UsageError) as caught:
        controls.order("explode")
    assert caught.value.code == "run.order"


def test_orders_are_announced_and_change_what_is_told() -> None:
    controls, calls = RunControls(), list[bool]()

    def paused() -> bool:
        return controls.paused

    controls.on_change = lambda: calls.append(paused())
    assert controls.order("pause") == "pausing after this exchange"
    assert controls.order("step") == "one exchange, then paused"
    controls.pass_gate()
    assert paused(), "the step is used up"
    assert controls.order("resume") == "running"
    assert controls.order("finish") == "finishing after this round"
    assert controls.order("abort") == "aborting"
    assert calls == [True, False, False, False, False]
    assert controls.finishing
    assert controls.interrupted()


def when(
    here: World, kind: str, round_number: int, controls: RunControls, order: str
) -> Callable[[Event], None]:
    """Give an order at the first event of a kind in a round."""
    given: list[str] = []

    def listener(event: Event) -> None:
        if not given and event.kind == kind and here.record.round >= round_number:
            given.append(controls.order(order))

    return listener


def undisturbed(world: MakeWorld) -> str:
    return world().engine().run().weights_digest

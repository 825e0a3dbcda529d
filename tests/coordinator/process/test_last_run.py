"""After a restart the snapshot contains the last run as before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.mosquitto import MosquittoBroker
from edgefed.control.coordinator_client import CoordinatorClient
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.process.last_run import with_last_run
from edgefed.coordinator.storage.new_run import create_run
from edgefed.coordinator.storage.run_store import Store
from edgefed.events.base.best_rounds import MAX_ROUNDS
from edgefed.events.base.model import Event
from edgefed.events.base.snapshot import Snapshot
from edgefed.events.state.fold import SnapshotBuilder
from tests.coordinator.storage.test_service_orders import plan, serving
from tests.coordinator.told_events import logged
from tests.events.reference import plain_fold
from tests.run_fixture import Ticking, World, recipe, shards
from tests.transport.listening import wait_until

FIRST = Snapshot(fleet="tests")
NOW = "2024-05-06T07:08:09.000Z"


def test_it_is_what_the_events_had_made_of_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    told: list[Snapshot] = [FIRST]
    world.engine(listener=lambda event: told.append(plain_fold(told[-1], event))).run()
    before, after = told[-1], with_last_run(FIRST, world.store())
    record = world.store().run(world.run)
    world.close()
    assert before.run is not None
    assert after.run is not None
    assert (after.run.status, after.run.round, len(after.rounds)) == ("finished", 3, 3)
    assert after.run.weights_digest
    opened = {"exchange", "question", "asked", "wanted", "quorum", "accepted", "deadline"}
    opened |= {"slowest", "slowest_seconds", "refused", "round_at"}
    assert after.run.model_dump(exclude=opened | {"opened_at"}) == before.run.model_dump(
        exclude=opened | {"opened_at"}
    )
    assert after.rounds == before.rounds
    assert (after.sent, after.received) == (before.sent, before.received)
    assert (after.sent, after.received) == (record.bytes_down, record.bytes_up)
    assert after.sent > 0


def test_a_run_that_was_restored_is_still_known_as_one(tmp_path: Path) -> None:
    world = World(tmp_path)
    store = world.store()
    store.save_run(replace(store.run(world.run), restored=NOW))
    after = with_last_run(FIRST, store)
    world.close()
    assert after.run is not None
    assert after.run.restored == NOW


def test_the_accuracy_of_each_device_is_there_again(tmp_path: Path) -> None:
    tested = recipe(evaluation={"on": "devices"})
    world = World(tmp_path, tested, shards((5, 9, 6), tested=10))
    told: list[Snapshot] = [FIRST]
    world.engine(listener=lambda event: told.append(plain_fold(told[-1], event))).run()
    logged(world)
    after = with_last_run(FIRST, world.store()).tests
    world.close()
    assert after == told[-1].tests
    assert [(test.device, test.round) for test in after] == [
        (view.device, 3) for view in told[-1].devices
    ]
    builder = SnapshotBuilder(Snapshot(tests=after))
    device = after[1].device
    builder.apply(Event(time=NOW, kind="device", fields={"device": device, "state": "idle"}))
    (view,) = builder.snapshot().devices
    assert (view.accuracy, view.accuracy_round) == (after[1].accuracy, 3)


def test_the_run_before_is_there_to_compare_with(tmp_path: Path) -> None:
    store = Store(tmp_path)
    older, empty, newest = (create_run(store, plan(), Ticking()) for _ in range(3))
    store.save_round(older, {"round": 1, "accuracy": 0.5, "slowest": "cam-1"})
    for record in (older, empty, newest):
        store.save_run(replace(store.run(record.run), status="finished"))
    previous = with_last_run(FIRST, store).previous
    store.close()
    assert previous is not None
    assert (previous.run, previous.rounds[0].accuracy) == (older.run, 0.5)
    assert previous.rounds[0].slowest == "cam-1"


def test_the_run_that_will_be_resumed_comes_before_a_newer_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert with_last_run(FIRST, store) == FIRST
    runs = [create_run(store, plan(), Ticking()).run for _ in range(3)]
    for run, status in zip(runs, ("failed", "paused", "aborted"), strict=True):
        store.save_run(replace(store.run(run), status=status, reason="why"))  # type: ignore[arg-type]
    shown = with_last_run(FIRST, store).run
    assert shown is not None
    assert (shown.run, shown.status, shown.reason) == (runs[1], "paused", "why")
    store.save_run(replace(store.run(runs[1]), status="finished"))
    shown = with_last_run(FIRST, store).run
    assert shown is not None
    assert (shown.run, shown.status) == (runs[2], "aborted")
    store.close()


def test_of_a_long_run_the_sums_are_of_all_rounds(tmp_path: Path) -> None:
    store = Store(tmp_path)
    record = create_run(store, plan(), Ticking())
    for number in range(1, MAX_ROUNDS + 3):
        scores = {"accuracy": 1 / number, "sent": 2, "received": 1}
        store.save_round(record, {"round": number, **scores})
    shown = with_last_run(FIRST, store)
    store.close()
    assert [shown.rounds[0].round, len(shown.rounds)] == [3, MAX_ROUNDS]
    assert [(row.round, row.accuracy) for row in shown.early_best] == [(1, 1.0)]
    assert (shown.sent, shown.received) == (2 * (MAX_ROUNDS + 2), MAX_ROUNDS + 2)


def test_the_curve_goes_on_when_the_run_does(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.engine().run()
    journal = EventJournal("tests", Ticking())
    journal.begin_with(lambda snapshot: with_last_run(snapshot, world.store()))
    journal.emit("run", run=world.run, status="running")
    assert [point.round for point in journal.snapshot.rounds] == [1, 2, 3]
    world.close()


@pytest.mark.mosquitto
def test_a_restarted_coordinator_tells_of_its_last_run(
    mosquitto: MosquittoBroker, tmp_path: Path
) -> None:
    with serving(mosquitto, tmp_path) as service:
        run = service.start(plan()).run
        wait_until(lambda: service._store.run(run).status == "finished", "the end")
        wait_until(lambda: not service._jobs, "the end of the job")
    with serving(mosquitto, tmp_path):
        client = CoordinatorClient(mosquitto.address, "review")
        client.connect()
        try:
            client.wait_until_online()
            snapshot = Snapshot.model_validate(client.ask("snapshot")["snapshot"])
        finally:
            client.close()
    assert snapshot.run is not None
    assert (snapshot.run.run, snapshot.run.status) == (run, "finished")
    assert [point.round for point in snapshot.rounds] == [1, 2]

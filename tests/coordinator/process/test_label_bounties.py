"""Label bounties in a run: what is told of them, and orders that a kill neither loses nor moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.process.last_run import with_last_run
from edgefed.coordinator.rounds.run_controls import RunControls
from edgefed.coordinator.storage.run_store import Store
from edgefed.data.base.types import Dataset, Shard, no_samples
from edgefed.errors import StorageError
from edgefed.events.base.bounty_tables import BOUNTIES
from edgefed.events.base.model import Event
from edgefed.events.base.snapshot import Snapshot
from edgefed.sharing.bounty_report import BountyOrder
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.exchanges.test_resume import Fuse, PowerCut
from tests.coordinator.told_events import logged, snapshot_of
from tests.run_fixture import CLASSES, World, recipe, samples
from tests.support.lacking import LABELS, WANTED, installed

DEVICES = 2
IMAGE = (2, 4)


@pytest.fixture(autouse=True, scope="module")
def _installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, installed(tmp_path_factory.mktemp("site"), patch):
        yield


def plan() -> Recipe:
    return recipe(algorithm={"name": "lacking"}, labels=WANTED, rounds={"count": 4})


def here(world: MakeWorld) -> World:
    """Return a run on images whose devices hold every label, so only the double has bounties."""
    parts = [Shard(samples(size, size, IMAGE), no_samples(IMAGE), CLASSES) for size in (12, 15)]
    assert all(len(set(part.train.targets)) == CLASSES for part in parts)
    made = world(plan(), parts)
    made.dataset = Dataset(no_samples(IMAGE), samples(12, 99, IMAGE), CLASSES, IMAGE)
    return made


Orders = dict[int, tuple[Any, ...]]
"""Orders by the round during whose exchange they are given."""

ORDERS: Orders = {
    1: ("cancel", "", 1),
    2: ("open", "device-00", None),
    3: ("cancel", "device-00", 1),
}


def giving(world: World, orders: Orders) -> Callable[[Event], None]:
    """Return a listener that gives each order once, while its round's exchange is open."""
    store = world.store()

    def listen(event: Event) -> None:
        number = event.fields.get("round")
        if event.kind != "exchange" or event.fields.get("question") != "fit":
            return
        if number not in orders:
            return
        if sorted(orders).index(number) == len(store.bounty_orders(world.run)):
            store.add_bounty_order(world.run, *orders[number])

    return listen


def bounties(snapshot: Snapshot) -> dict[tuple[str, int], tuple[str, int, int]]:
    return {
        (view.device, view.label): (view.status, view.received, view.noise)
        for view in snapshot.bounties
    }


def changes(run: World) -> list[dict[str, Any]]:
    """Return the events about bounties."""
    return [dict(event) for event in run.seen("table", name=BOUNTIES)]


def test_every_change_of_the_report_is_told(world: MakeWorld) -> None:
    run = here(world)
    assert run.engine().run().status == "finished"
    told = [(len(event["rows"]), event["verdict"]) for event in changes(run)]
    every = DEVICES * LABELS
    assert told == [
        (every, f"no mix yet: no device has offered mixes; {every} open"),
        (every, f"mixes fill 17 %; {every} open"),
        (every, f"mixes fill 33 %, noise 67 %; {every} closed"),
    ]
    snapshot = snapshot_of(run)
    assert set(bounties(snapshot).values()) == {("closed", 2, 4)}
    assert [(view.device, view.released) for view in snapshot.budgets] == [
        ("device-00", 2 * LABELS),
        ("device-01", 2 * LABELS),
    ]
    kinds = [event.kind for event in run.events]
    assert kinds.index("table") < kinds.index("round"), "before the first exchange"


def test_orders_are_carried_out_before_the_next_exchange(world: MakeWorld) -> None:
    run = here(world)
    listener = giving(run, {1: ("cancel", "device-01", 2), 2: ("open", "device-01", 2)})
    assert run.engine(listener=listener).run().status == "finished"
    of_one = [
        (row[2], row[7], row[8])
        for event in changes(run)
        for row in event["rows"]
        if row[0] == "device-01/2"
    ]
    assert of_one == [("open", 0, 0), ("open", 1, 0), ("cancelled", 1, 5), ("open", 1, 0),
                      ("closed", 2, 4)]  # fmt: skip


def undisturbed(world: MakeWorld) -> tuple[str, dict[tuple[str, int], tuple[str, int, int]]]:
    run = here(world)
    run.engine(listener=giving(run, ORDERS)).run()
    assert run.record.status == "finished"
    return run.record.weights_digest, bounties(snapshot_of(run))


def test_the_orders_decide_about_the_bits(world: MakeWorld) -> None:
    """What the tests below rely on."""
    digest, _ = undisturbed(world)
    run = here(world)
    run.engine().run()
    assert run.record.weights_digest != digest
    moved = {2: ORDERS[1], 3: ORDERS[2], 4: ORDERS[3]}
    run = here(world)
    run.engine(listener=giving(run, moved)).run()
    assert run.record.weights_digest != digest


def test_a_run_killed_anywhere_carries_out_each_order_where_it_was(world: MakeWorld) -> None:
    digest, rows = undisturbed(world)
    for passes in range(0, 400, 41):
        run = here(world)
        listener = giving(run, ORDERS)
        run.clock.on_read = Fuse(passes)
        try:
            run.engine(listener=listener).run()
        except PowerCut:
            run.clock.on_read = lambda: None
            run.engine(listener=listener).run()
        else:
            break
        finally:
            run.clock.on_read = lambda: None
        assert (run.record.status, run.record.weights_digest) == ("finished", digest), passes
        assert bounties(snapshot_of(run)) == rows
    assert passes >= 8


def test_after_a_restart_the_snapshot_has_them_before_the_run_goes_on(world: MakeWorld) -> None:
    run, controls = here(world), RunControls()
    listener = giving(run, ORDERS)

    def stopping(event: Event) -> None:
        listener(event)
        if event.kind == "exchange" and event.fields.get("round") == 3:
            controls.stop_process()

    run.engine(controls=controls, listener=stopping).run()
    before = snapshot_of(run)
    assert {view.status for view in before.bounties} == {"open", "closed", "cancelled"}
    logged(run)
    after = with_last_run(Snapshot(), run.store())
    assert after.bounties == before.bounties, "order 3 waits for the next exchange"
    assert after.budgets == before.budgets


def test_orders_are_kept_by_run_and_in_order(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.bounty_orders("r-1") == []
    assert [
        store.add_bounty_order("r-1", "cancel", "", None),
        store.add_bounty_order("r-2", "open", "a", 3),
        store.add_bounty_order("r-1", "open", "b", 0),
    ] == [1, 1, 2]
    store.close()
    again = Store(tmp_path)
    assert again.bounty_orders("r-1") == [
        BountyOrder(1, "cancel"),
        BountyOrder(2, "open", "b", 0),
    ]
    assert again.bounty_orders("r-2") == [BountyOrder(1, "open", "a", 3)]
    again._db.connection.execute("update bounty_orders set record = replace(record, 'b', 'c')")
    again.close()
    damaged = Store(tmp_path)
    with pytest.raises(StorageError, match="bounty_orders was changed"):
        damaged.bounty_orders("r-1")
    damaged.close()

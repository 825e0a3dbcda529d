"""A run that is killed at any point and restored from the store ends with the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from safetensors.numpy import load_file

from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.rounds.run_controls import RunControls
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.wire.tensors import weights_digest
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.fleets import TamperedFleet
from tests.run_fixture import COARSE, EXACT, World, recipe, shards


class PowerCut(BaseException):
    """The coordinator is gone, without a chance to put anything in order."""


class Fuse:
    """Blows when it is passed for the n-th time."""

    def __init__(self, passes: int) -> None:
        self._left = passes

    def __call__(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise PowerCut


def plan(wire: dict[str, Any], **sections: Any) -> Recipe:
    return recipe(wire=wire, rounds={"count": 3, "cohort": 3}, **sections)


def parts() -> Any:
    return shards((5, 9, 6, 4), tested=5)


def cut_in_replies(
    here: World, fuse: Fuse, algorithm: CompleteAlgorithm[Any] | None = None
) -> None:
    """Run until the fuse blows on the way of a reply."""

    def tamper(_: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        for each in replies:
            fuse()
            yield each

    here.engine(TamperedFleet(here.devices, tamper), algorithm=algorithm).run()


def cut_in_time(here: World, fuse: Fuse) -> None:
    """Run until the fuse blows at a look at the clock.

    There is one with every event, reply and row: before and after each write to the store.
    """
    here.clock.on_read = fuse
    try:
        here.engine().run()
    finally:
        here.clock.on_read = lambda: None


def undisturbed(world: MakeWorld, chosen: Recipe) -> tuple[str, list[dict[str, Any]]]:
    here = world(chosen, parts())
    assert here.engine().run().status == "finished"
    return here.record.weights_digest, scores(here)


def scores(here: World) -> list[dict[str, Any]]:
    """Return what the rounds' rows say about the model."""
    kept = ("round", "accuracy", "loss", "device_loss", "train_loss", "replies", "late")
    return [{name: row.get(name) for name in kept} for row in here.rows]


def cut_everywhere(
    world: MakeWorld,
    chosen: Recipe,
    run: Callable[[World, Fuse], None],
    least: int,
    step: int = 1,
) -> None:
    """Cut at every passing, or every ``step``-th, and resume each time, until nothing was cut."""
    digest, rows = undisturbed(world, chosen)
    for passes in range(0, 200, step):
        here = world(chosen, parts())
        try:
            run(here, Fuse(passes))
        except PowerCut:
            resumed = here.engine().run()
        else:
            break
        assert resumed.status == "finished", (passes, resumed.reason)
        assert resumed.weights_digest == digest, f"cut at passing {passes}"
        assert scores(here) == rows, f"cut at passing {passes}"
    assert passes > least, "nothing was cut"


@pytest.mark.parametrize("rule", ["mean", "geometric_median"])
def test_cut_on_the_way_of_any_reply(world: MakeWorld, rule: str) -> None:
    cut_everywhere(world, plan(COARSE, merging={"rule": rule}), cut_in_replies, least=8, step=2)


def test_cut_at_any_time_with_tests_on_devices(world: MakeWorld) -> None:
    chosen = recipe(wire=COARSE, rounds={"count": 2, "cohort": 2}, evaluation={"on": "both"})
    cut_everywhere(world, chosen, cut_in_time, least=50, step=11)


@pytest.mark.parametrize("exchange", [2, 3])
def test_stopped_after_any_exchange(world: MakeWorld, exchange: int) -> None:
    chosen = plan(COARSE, evaluation={"on": "both"})
    digest, rows = undisturbed(world, chosen)
    here = world(chosen, parts())
    stopping = RunControls()

    def stop_then(asked: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        for place, each in enumerate(replies, start=1):
            if asked.index == exchange and place == len(asked.tasks):
                stopping.stop_process()
            yield each

    record = here.engine(TamperedFleet(here.devices, stop_then), stopping).run()
    assert record.status == here.record.status == "running", "the order decides nothing"
    assert not (here.folder / "runs" / here.run / "model.safetensors").exists()
    assert here.engine().run().weights_digest == digest
    assert scores(here) == rows
    assert sum(row["sent"] for row in here.rows) == here.record.bytes_down
    assert sum(row["received"] for row in here.rows) == here.record.bytes_up


def test_cut_again_and_again(world: MakeWorld) -> None:
    chosen = plan(COARSE, evaluation={"on": "devices"})
    digest, rows = undisturbed(world, chosen)
    here, cuts = world(chosen, parts()), 0
    while True:
        try:
            cut_in_replies(here, Fuse(4))
            break
        except PowerCut:
            cuts += 1
    assert cuts >= 4
    assert here.record.weights_digest == digest
    assert scores(here) == rows


def test_an_exchange_is_put_again_as_it_was(world: MakeWorld) -> None:
    here = world(plan(COARSE), parts())
    first, second = TamperedFleet(here.devices), TamperedFleet(here.devices)

    def cut(_: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        yield next(replies)
        raise PowerCut

    first = TamperedFleet(here.devices, cut)
    with pytest.raises(PowerCut):
        here.engine(first).run()
    assert here.engine(second).run().status == "finished"
    assert first.asked == second.asked[:1]
    assert [exchange.index for exchange in second.asked] == [0, 1, 2]


def test_replies_are_kept_by_devices_while_their_exchange_is_open(world: MakeWorld) -> None:
    here = world(plan(EXACT), parts())
    aborting = RunControls()

    def abort_in_round_two(
        exchange: OpenExchange, replies: Iterator[Delivered]
    ) -> Iterator[Delivered]:
        for each in replies:
            if exchange.index == 1:
                aborting.order("abort")
            yield each

    fleet = TamperedFleet(here.devices, abort_in_round_two)
    assert here.engine(fleet, aborting).run().status == "aborted"
    assert fleet.through == 0
    after = TamperedFleet(here.devices)
    assert here.engine(after).run().status == "finished"
    assert after.through == 2


def test_an_aborted_run_keeps_its_model_and_can_be_resumed(world: MakeWorld) -> None:
    digest, _ = undisturbed(world, plan(COARSE))
    here = world(plan(COARSE), parts())
    aborting = RunControls()

    def abort(exchange: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        for each in replies:
            yield each
            if exchange.index == 1:
                aborting.order("abort")

    record = here.engine(TamperedFleet(here.devices, abort), aborting).run()
    assert (record.status, record.error, record.round) == ("aborted", "run.aborted", 1)
    assert here.record == record
    model = load_file(here.folder / "runs" / here.run / "model.safetensors")
    checkpoint = here.stores[0].checkpoint(here.run)
    assert checkpoint is not None
    assert checkpoint.state.round == 1
    assert weights_digest(checkpoint.state.groups["weights"]) == record.weights_digest
    assert sorted(model) == sorted(checkpoint.state.groups["weights"])
    resumed = here.engine().run()
    assert (resumed.weights_digest, resumed.round) == (digest, 3)
    assert [event["round"] for event in here.seen("round")] == [1, 2, 2, 3]
    assert sum(row["received"] for row in here.rows) == resumed.bytes_up  # before the abort, too


def test_an_open_test_is_finished_although_it_is_no_longer_due(world: MakeWorld) -> None:
    """A run that was to finish after this round is killed in its last test."""
    here = world(plan(EXACT, evaluation={"on": "devices", "every": 0}), parts())
    finishing = RunControls()
    finishing.order("finish")

    def cut(exchange: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        if exchange.name == "evaluate":
            raise PowerCut
        return replies

    with pytest.raises(PowerCut):
        here.engine(TamperedFleet(here.devices, cut), finishing).run()
    record = here.engine().run()
    assert (record.status, record.round) == ("finished", 3)
    assert [row["accuracy"] is None for row in here.rows] == [False, True, False]


def test_blobs_that_somebody_deleted_are_made_again(world: MakeWorld) -> None:
    here = world(plan(COARSE), parts())
    with pytest.raises(PowerCut):
        cut_in_replies(here, Fuse(4))
    here.cache.clear()
    assert here.engine().run().status == "finished"

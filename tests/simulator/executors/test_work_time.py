"""The seconds of a virtual device count its own work, without waiting."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from edgefed.simulator.executors import Sequential
from edgefed.simulator.local_fleet import LocalFleet
from edgefed.simulator.process_pool import ProcessPool
from edgefed.simulator.serialization import outcome_bytes, read_outcome
from edgefed.simulator.stacked_executor import StackedExecutor
from edgefed.worker.outcomes import Outcome
from edgefed.worker.trainer_cache import TrainerCache
from tests.run_fixture import Ticking
from tests.simulator.executors.test_local_fleet import PARTS, Bus, exchange
from tests.simulator.work import never, orders, shards

COUNT = 6


def test_one_device_after_another_each_has_its_own_time() -> None:
    asked, blobs = orders(COUNT)
    hands = Sequential(shards(COUNT), TrainerCache("cpu"), Ticking())
    seconds = [out.seconds for _, out in hands.outcomes(asked, blobs.__getitem__, never)]
    assert seconds == [1.0] * COUNT


@pytest.mark.parametrize("chunk", [2, COUNT])
def test_of_what_is_trained_at_once_each_device_has_an_equal_share(chunk: int) -> None:
    asked, blobs = orders(COUNT)
    hands = StackedExecutor(shards(COUNT), chunk, trainers=TrainerCache("cpu"), clock=Ticking())
    seconds = [out.seconds for _, out in hands.outcomes(asked, blobs.__getitem__, never)]
    assert seconds == [1.0 + 1.0 / chunk] * COUNT  # to prepare it, and of the training


def test_the_time_in_worker_processes_holds_no_waiting() -> None:
    asked, blobs = orders(COUNT, epochs=20)
    pool = ProcessPool(shards(COUNT), 1)
    try:
        begun = time.monotonic()
        done = [out for _, out in pool.outcomes(asked, blobs.__getitem__, never)]
        taken = time.monotonic() - begun
    finally:
        pool.close()
    assert len(done) == COUNT
    assert all(out.seconds > 0 for out in done)
    # One worker does one after another, so all of it together is no longer than the whole.
    assert sum(out.seconds for out in done) <= taken


def test_a_reply_tells_the_time_of_the_work(tmp_path: Path) -> None:
    bus = Bus(tmp_path)
    hands = Sequential(PARTS, TrainerCache("cpu"), Ticking())
    fleet = LocalFleet(PARTS, bus.cache, Ticking(), executor=hands)
    assert [each.seconds for each in fleet.ask(exchange(0), never)] == [1.0, 1.0]


def test_the_time_survives_the_pipe_and_makes_no_outcome_another() -> None:
    outcome = Outcome("ok", samples=3, seconds=1.5)
    assert read_outcome(outcome_bytes(outcome)).seconds == 1.5
    assert outcome == Outcome("ok", samples=3)

"""Virtual devices keep state and a ledger like real ones, with any executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.data.base.types import Shard
from edgefed.learn.base.types import Tensors
from edgefed.simulator.executors import Executor, Sequential, WorkOrder
from edgefed.simulator.local_fleet import LocalFleet, device_names
from edgefed.simulator.serialization import order_bytes, outcome_bytes, read_order, read_outcome
from edgefed.simulator.stacked_executor import StackedExecutor
from edgefed.wire.blobs import BlobCache
from edgefed.wire.messages import Task
from edgefed.wire.tensors import pack
from edgefed.worker.outcomes import Outcome, PersistentState
from tests.run_fixture import Ticking, shards
from tests.simulator.work import process_pool
from tests.support.releasing import NAME, installed
from tests.worker.tasks import task, weights

pytestmark = pytest.mark.forks

PARTS = shards((9, 5), tested=4)


def from_task(given: Task) -> np.random.Generator:
    return np.random.default_rng([given.index, given.seed])


EXECUTORS: dict[str, Callable[[Sequence[Shard]], Executor]] = {
    "one process": lambda parts: Sequential(parts, private_randomness=from_task),
    "a pool": lambda parts: process_pool(parts, 2, from_task),
    "stacked": lambda parts: StackedExecutor(parts, private_randomness=from_task),
}


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with installed(tmp_path / "site", monkeypatch):
        yield


class Recording:
    """An executor that keeps the orders that it was given."""

    def __init__(self, real: Executor) -> None:
        self._real = real
        self.orders: list[WorkOrder] = []

    def outcomes(
        self, orders: Sequence[WorkOrder], *rest: Any
    ) -> Iterator[tuple[WorkOrder, Outcome]]:
        self.orders = list(orders)
        return self._real.outcomes(orders, *rest)

    def close(self) -> None:
        self._real.close()


def ask(fleet: LocalFleet, index: int, run: str = "r-1") -> list[Delivered]:
    """Ask both devices; return the replies sorted by device."""
    name = f"{run}-{index}"
    tasks = tuple(
        task(algorithm=NAME, run=run, exchange=name, index=index, round=index, device=device)
        for device in device_names(2)
    )
    exchange = OpenExchange(name, index, "fit", 1, tasks, 2, 1, 60.0)
    return sorted(fleet.ask(exchange, lambda: False), key=lambda each: each.reply.device)


def before(replies: list[Delivered]) -> list[tuple[float, float]]:
    metrics = [each.reply.metrics for each in replies]
    return [(each["before"], each["entries"]) for each in metrics]


@pytest.mark.parametrize("name", EXECUTORS)
def test_an_exchange_asked_again_starts_from_the_state_before_it(name: str, tmp_path: Path) -> None:
    cache = BlobCache(tmp_path / "blobs", 1 << 20)
    cache.put(pack(weights()))
    executor = Recording(EXECUTORS[name](PARTS))
    fleet = LocalFleet(PARTS, cache, Ticking(), executor=executor)
    try:
        assert before(ask(fleet, 1)) == [(0.0, 0.0)] * 2
        first = ask(fleet, 2)
        assert before(first) == [(1.0, 1.0)] * 2
        for _ in range(2):
            again = ask(fleet, 2)
            assert before(again) == [(1.0, 1.0)] * 2
            assert [each.reply.blobs for each in again] == [each.reply.blobs for each in first]
        assert before(ask(fleet, 3, run="r-2")) == [(2.0, 2.0)] * 2
        ask(fleet, 4)
        for order in executor.orders:
            kept = order.persistent
            assert [entry["round"] for entry in kept.ledger] == [1, 2, 3]
            assert set(kept.device_state) == {"releases", "round-3"}
            drawn = kept.device_state["round-3"]["noise"].tolist()
            assert kept.ledger[-1]["noise"] == drawn
    finally:
        executor.close()


@pytest.mark.parametrize("executor", [Sequential, lambda parts: process_pool(parts, 2)])
def test_without_another_source_two_identical_orders_draw_differently(
    executor: Callable[[Sequence[Shard]], Executor],
) -> None:
    given, blobs = task(algorithm=NAME), {task().blobs["weights"].digest: pack(weights())}
    hands = executor(PARTS)
    orders = [WorkOrder(0, given, {}), WorkOrder(0, given, {})]
    try:
        found = [out for _, out in hands.outcomes(orders, blobs.__getitem__, lambda: False)]
    finally:
        hands.close()
    assert found[0].ledger[0]["noise"] != found[1].ledger[0]["noise"]
    assert found[0].blobs["delta"] == found[1].blobs["delta"]


def test_bytes_carry_what_outlives_a_run() -> None:
    state: dict[str, Tensors] = {"kept": {"w": np.arange(3.0)}, "gone": {}}
    ledger = ({"epsilon": 0.1, "large": 2**80, "text": "ε"}, {"n": [1, None]})
    outcome = read_outcome(outcome_bytes(Outcome("ok", device_state=state, ledger=ledger)))
    assert outcome.ledger == ledger
    assert outcome.device_state["gone"] == {}
    assert outcome.device_state["kept"]["w"].tolist() == [0.0, 1.0, 2.0]
    order = read_order(order_bytes(WorkOrder(0, task(), {}, PersistentState(state, ledger))))
    assert order.persistent.ledger == ledger
    assert order.persistent.device_state["kept"]["w"].tolist() == [0.0, 1.0, 2.0]

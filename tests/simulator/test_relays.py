"""Virtual devices send each other blobs as real ones do, whoever does their work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.data.base.types import Shard
from edgefed.simulator.executors import Executor, Sequential
from edgefed.simulator.local_fleet import LocalFleet, device_names
from edgefed.simulator.stacked_executor import StackedExecutor
from edgefed.wire.blobs import BlobCache
from edgefed.wire.message_parts import DeliveredRelay
from edgefed.wire.messages import Reply
from edgefed.wire.tensors import digest, pack
from tests.run_fixture import Ticking, shards
from tests.simulator.work import process_pool
from tests.support.relaying import bytes_for, installed
from tests.worker.tasks import task, weights

pytestmark = pytest.mark.forks

PARTS = shards((9, 5), tested=4)
ONE, TWO = device_names(2)
EXECUTORS: dict[str, Callable[[Sequence[Shard]], Executor]] = {
    "one process": Sequential,
    "a pool": lambda parts: process_pool(parts, 2),
    "stacked": StackedExecutor,
}


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with installed(tmp_path / "site", monkeypatch):
        yield


class Fleet:
    """Two virtual devices."""

    def __init__(self, folder: Path, executor: Executor) -> None:
        self.cache = BlobCache(folder, 1 << 20)
        self.cache.put(pack(weights()))
        self.fleet = LocalFleet(PARTS, self.cache, Ticking(), executor=executor)

    def ask(self, question: str, changes: dict[str, dict[str, Any]]) -> dict[str, Reply]:
        """Ask both devices; keep what they send to each other, and return the replies."""
        tasks = tuple(
            task(algorithm="relaying", question=question, device=device, **changes[device])
            for device in (ONE, TWO)
        )
        exchange = OpenExchange(tasks[0].exchange, 4, question, 1, tasks, 2, 1, 60.0)
        replies = {}
        for delivered in self.fleet.ask(exchange, lambda: False):
            reply = replies[delivered.reply.device] = delivered.reply
            assert reply.status == "ok", reply.reason
            for sent in reply.relays.values():
                self.cache.put(delivered.read(sent.digest))
        return replies


def deliveries(sent: dict[str, Reply], receiver: str) -> tuple[DeliveredRelay, ...]:
    return tuple(
        DeliveredRelay(exchange=reply.exchange, sender=sender, digest=each.digest, size=each.size)
        for sender, reply in sorted(sent.items())
        for to, each in reply.relays.items()
        if to == receiver
    )


def played(folder: Path, executor: Executor) -> list[tuple[float, str]]:
    try:
        fleet = Fleet(folder, executor)
        both = {"max_relay_bytes": 70_000, "blobs": {}}
        sent = fleet.ask(
            "pass", {ONE: {**both, "receivers": (TWO,)}, TWO: {**both, "receivers": (ONE,)}}
        )
        expected = bytes_for(task().seed, TWO, 70_000)
        assert sent[ONE].relays[TWO].digest == digest(expected)
        _, before = fleet.fleet.traffic()
        answers = fleet.ask(
            "fit", {device: {"relays": deliveries(sent, device)} for device in (ONE, TWO)}
        )
        _, after = fleet.fleet.traffic()
        assert after - before > 2 * 70_000, "what a real fleet would have moved"
        return [
            (answers[device].metrics["received"], answers[device].blobs["delta"].digest)
            for device in (ONE, TWO)
        ]
    finally:
        executor.close()


@pytest.mark.parametrize("name", ["a pool", "stacked"])
def test_every_executor_hands_over_the_same_bytes(name: str, tmp_path: Path) -> None:
    plain = played(tmp_path / "plain", EXECUTORS["one process"](PARTS))
    found = played(tmp_path / "other", EXECUTORS[name](PARTS))
    assert [count for count, _ in found] == [1.0, 1.0]
    if name == "a pool":  # one that trains many at once agrees up to rounding
        assert found == plain

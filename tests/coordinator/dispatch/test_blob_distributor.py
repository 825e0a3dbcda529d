"""When a blob that many devices need is broadcast, and when a request needs no broadcast."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import cast

import pytest

from edgefed.coordinator.dispatch.device_publisher import GATHER, BlobDistributor
from edgefed.transport.sender import ChunkSender
from edgefed.wire.blobs import BlobCache
from edgefed.wire.messages import Need
from edgefed.wire.topics import Topics

TOPICS = Topics("small")
DATA = bytes(1000)


class Sent:
    """Notes what is sent, in place of a connection's sender."""

    def __init__(self) -> None:
        self.topics: list[str] = []

    def send(self, topic: str, digest: str, pieces: object, chunks: Iterable[int]) -> None:
        assert list(chunks) == [0]
        self.topics.append(topic)


class Scene:
    def __init__(self, folder: Path) -> None:
        cache = BlobCache(folder, 10**6)
        self.digest = cache.put(DATA)
        self.sent = Sent()
        self.distributor = BlobDistributor(cache, cast(ChunkSender, self.sent), TOPICS)
        self.counted = 0

    def expect(self, count: int) -> Callable[[], int]:
        def counted() -> int:
            self.counted += 1
            return count

        return counted

    def need(
        self, device: str, now: float, arrived: float | None = None, expected: int = 3
    ) -> list[str]:
        """Let a device ask, and return the topics to which something was sent."""
        self.sent.topics.clear()
        need = Need(digest=self.digest, first=True)
        self.distributor.take(device, need, self.expect(expected), now, arrived=arrived)
        return list(self.sent.topics)

    def due(self, now: float) -> list[str]:
        self.sent.topics.clear()
        self.distributor.due(now)
        return list(self.sent.topics)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_one_broadcast_serves_all_that_ask(scene: Scene) -> None:
    everybody = [TOPICS.broadcast_chunk(scene.digest)]
    assert [scene.need(name, 1.0) for name in "abc"] == [[], [], everybody]
    assert scene.counted == 1, "a fleet's devices are counted once, not for each of them"
    assert scene.distributor.delivered == 3 * len(DATA)


def test_the_last_are_not_waited_for(scene: Scene) -> None:
    assert scene.need("a", 1.0) == scene.need("b", 1.0) == []
    assert scene.due(1.0 + 0.9 * GATHER) == []
    assert scene.due(1.0 + 1.1 * GATHER) == [TOPICS.broadcast_chunk(scene.digest)]


def test_a_request_that_a_broadcast_has_met_causes_no_second_one(scene: Scene) -> None:
    for name in "abc":
        scene.need(name, 5.0)
    assert scene.need("d", 6.0, arrived=4.9) == []  # it waited in the inbox
    assert scene.due(9.0) == []
    assert scene.distributor.delivered == 4 * len(DATA)
    assert scene.need("e", 6.0, arrived=5.5) == []
    assert scene.due(9.0) == [TOPICS.down_chunk("e")], "it had not subscribed by then"
    assert scene.need("f", 10.0, expected=1) == [TOPICS.down_chunk("f")]

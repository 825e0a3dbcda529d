"""Uploads of replies: a few at a time, and not blocked by a lost device."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from edgefed.coordinator.dispatch import reply_receiver
from edgefed.coordinator.dispatch.reply_receiver import LEAST_UPLOADS, ReplyUploads
from edgefed.transport.blob_intake import Ask, BlobIntake
from edgefed.wire.blobs import BlobCache, chunk
from edgefed.wire.message_parts import SentRelay
from edgefed.wire.messages import BlobRef, Chunk, Reply
from edgefed.wire.tensors import digest


@pytest.fixture
def intake(tmp_path: Path) -> Iterator[BlobIntake]:
    made = BlobIntake(BlobCache(tmp_path / "blobs", 2**30), tmp_path / "staging", random.Random(1))
    with closing(made):
        yield made


def blob(number: int) -> bytes:
    return bytes([number]) * 1000


def reply(device: int, data: bytes) -> Reply:
    return Reply(
        run="r-1",
        exchange="r-1-0",
        index=0,
        device=f"device-{device}",
        session="0" * 8,
        bases={},
        status="ok",
        blobs={"delta": BlobRef(digest=digest(data), size=len(data))},
    )


def take(uploads: ReplyUploads, device: int, data: bytes) -> list[Ask]:
    asks, whole = uploads.take(reply(device, data), 0, 0.0)
    assert whole == []
    return asks


def deliver(uploads: ReplyUploads, intake: BlobIntake, data: bytes) -> tuple[list[str], list[str]]:
    """Let a blob arrive; return who is asked next, and whose replies are whole."""
    intake.chunk(Chunk(digest=digest(data), index=0, data=chunk(data, 0)), 0.0)
    asks, whole = uploads.arrived(digest(data), 0.0)
    return [ask.source for ask in asks], [each.device for each in whole]


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no reply fit into the bytes that may be on their way."""
    monkeypatch.setattr(reply_receiver, "MAX_UPLOAD_BYTES", 0)


@pytest.mark.usefixtures("large")
def test_only_a_few_upload_at_a_time_and_the_next_takes_a_free_place(intake: BlobIntake) -> None:
    uploads = ReplyUploads(intake)
    asked = [take(uploads, n, blob(n)) for n in range(LEAST_UPLOADS + 2)]
    assert [len(asks) for asks in asked] == [1] * LEAST_UPLOADS + [0, 0]
    assert deliver(uploads, intake, blob(3)) == ([f"device-{LEAST_UPLOADS}"], ["device-3"])
    assert uploads.take(reply(0, blob(0)), 0, 0.0) == ([], [])  # it is on its way


def test_small_replies_upload_together_up_to_their_bytes(
    intake: BlobIntake, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = LEAST_UPLOADS + 5
    monkeypatch.setattr(reply_receiver, "MAX_UPLOAD_BYTES", most * len(blob(0)))
    uploads = ReplyUploads(intake)
    asked = [take(uploads, n, blob(n)) for n in range(most + 2)]
    assert [len(asks) for asks in asked] == [1] * most + [0, 0]
    for place in range(2):  # each that ends gives its bytes back
        assert deliver(uploads, intake, blob(place))[0] == [f"device-{most + place}"]


@pytest.mark.usefixtures("large")
def test_equal_blobs_are_asked_for_once_and_serve_all(intake: BlobIntake) -> None:
    uploads = ReplyUploads(intake)
    for n in range(LEAST_UPLOADS):
        take(uploads, n, blob(n))
    take(uploads, 50, blob(0))  # waits for a place
    assert deliver(uploads, intake, blob(0)) == ([], ["device-0", "device-50"])


@pytest.mark.usefixtures("large")
def test_a_lost_device_gives_its_place_away(intake: BlobIntake) -> None:
    uploads = ReplyUploads(intake)
    for n in range(LEAST_UPLOADS + 1):
        take(uploads, n, blob(n))
    asks, whole = uploads.leave("device-2", 0.0)
    assert ([ask.source for ask in asks], whole) == ([f"device-{LEAST_UPLOADS}"], [])
    assert not intake.coming(digest(blob(2)))
    assert uploads.leave("device-77", 0.0) == ([], [])
    assert not uploads.knows("device-2", "r-1-0")


def test_an_equal_blob_of_a_lost_device_is_asked_of_the_other(intake: BlobIntake) -> None:
    uploads = ReplyUploads(intake)
    take(uploads, 1, blob(9))
    assert take(uploads, 2, blob(9)) == []
    asks, _ = uploads.leave("device-1", 0.0)
    assert [ask.source for ask in asks] == ["device-2"]
    assert deliver(uploads, intake, blob(9)) == ([], ["device-2"])


def inside(device: int, data: bytes) -> Reply:
    """A reply that carries its blob."""
    return reply(device, data).model_copy(update={"inline": {digest(data): data}})


def test_a_blob_inside_a_reply_does_not_wait_for_the_disk(
    intake: BlobIntake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wait for each of a thousand replies would hold up the receipts of all."""
    waits: list[int] = []
    sync = os.fsync

    def counted(file: int) -> None:
        waits.append(file)
        sync(file)

    monkeypatch.setattr(os, "fsync", counted)
    _, whole = ReplyUploads(intake).take(inside(1, blob(1)), 0, 0.0)
    assert [each.device for each in whole] == ["device-1"]
    assert intake.cache.get(digest(blob(1))) == blob(1)
    assert waits == []
    intake.cache.put(blob(2))
    assert len(waits) == 1, "other blobs do wait"


def test_a_blob_that_a_power_cut_damaged_is_taken_again(tmp_path: Path) -> None:
    damaged = tmp_path / "blobs" / digest(blob(1))
    damaged.parent.mkdir()
    damaged.write_bytes(bytes(1000))
    cache = BlobCache(tmp_path / "blobs", 2**30)
    with closing(BlobIntake(cache, tmp_path / "staging", random.Random(1))) as intake:
        _, whole = ReplyUploads(intake).take(inside(1, blob(1)), 0, 0.0)
        assert [each.device for each in whole] == ["device-1"]
        assert cache.get(digest(blob(1))) == blob(1)


class Recording(BlobCache):
    """A cache that notes which blobs it waited for the disk for."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, 2**30)
        self.synced: dict[bytes, bool] = {}

    def put(self, data: bytes, *, sync: bool = True) -> str:
        self.synced[data] = sync
        return super().put(data, sync=sync)


@pytest.mark.parametrize("pulled", [False, True])
@pytest.mark.parametrize("sync", [False, True])
def test_the_disk_is_waited_for_where_a_blob_outlives_its_exchange(
    pulled: bool, sync: bool, tmp_path: Path
) -> None:
    delta, relayed, stray = blob(1), blob(2), blob(3)
    cache = Recording(tmp_path / "blobs")
    sent = {"device-1": SentRelay(digest=digest(relayed), size=len(relayed))}
    inline = {} if pulled else {digest(data): data for data in (delta, relayed, stray)}
    told = reply(0, delta).model_copy(update={"relays": sent, "inline": inline})
    with closing(BlobIntake(cache, tmp_path / "staging", random.Random(1))) as intake:
        uploads = ReplyUploads(intake)
        asks, whole = uploads.take(told, 0, 0.0, sync=sync)
        assert len(asks) == 2 * pulled
        for data in (delta, relayed) if pulled else ():
            intake.chunk(Chunk(digest=digest(data), index=0, data=data), 0.0)
            whole += uploads.arrived(digest(data), 0.0)[1]
        assert whole == [told]
    assert cache.synced == {delta: sync, relayed: True}

"""The coordinator's keeping of blobs between devices: pins, limits, and what a kill leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefed.algorithms.interface.exchange import Exchange, Question, Relay
from edgefed.coordinator.exchanges.relayed_blobs import RelayedBlobs, open_blobs
from edgefed.coordinator.exchanges.reply_checks import Rejection
from edgefed.errors import StorageError, WireError
from edgefed.wire.blobs import BlobCache
from edgefed.wire.tensors import digest

DATA = b"opaque" * 100
NAME = digest(DATA)


def relay(sender: str, receiver: str, data: bytes = DATA, exchange: str = "r-1-0") -> Relay:
    return Relay(exchange, sender, receiver, digest(data), len(data))


def opened(folder: Path, limit: int = 1 << 20) -> RelayedBlobs:
    return RelayedBlobs(BlobCache(folder / "blobs", 2000), folder / "relays", (), limit)


def markers(folder: Path) -> set[str]:
    return {path.name for path in (folder / "relays").iterdir()}


def blobs(folder: Path) -> set[str]:
    return {path.name for path in (folder / "blobs").iterdir()}


def read(name: str) -> bytes:
    assert name == NAME
    return DATA


TWO = (relay("a", "b"), relay("c", "d"))


def test_equal_bytes_for_two_receivers_are_deleted_after_both(tmp_path: Path) -> None:
    held = opened(tmp_path)
    held.keep(TWO, read)
    held.sync(TWO)
    held.sync(TWO[1:])
    assert (blobs(tmp_path), markers(tmp_path)) == ({NAME}, {NAME})
    assert held.is_for_another("b", NAME)
    assert not held.is_for_another("d", NAME)
    held.sync(())
    assert (blobs(tmp_path), markers(tmp_path)) == (set(), set())
    assert not held.is_for_another("b", NAME)


def test_they_are_never_pushed_out_by_other_blobs(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path / "blobs", 2000)
    held = RelayedBlobs(cache, tmp_path / "relays")
    held.keep(TWO, read)
    for number in range(5):
        cache.put(bytes([number]) * 1500)
    assert cache.has(NAME)
    assert cache.total <= 2000 + len(DATA)


def test_the_next_process_keeps_what_is_written_down_and_deletes_the_rest(tmp_path: Path) -> None:
    held = opened(tmp_path)
    other = b"never merged"
    held.announce([digest(other), "0" * 64])  # the second one never came
    BlobCache(tmp_path / "blobs", 2000).put(other)
    unmarked = BlobCache(tmp_path / "blobs", 2000).put(b"weights")
    held.keep(TWO, read)
    assert markers(tmp_path) == {NAME, digest(other), "0" * 64}
    _, again = open_blobs(tmp_path, 2000, TWO[:1])
    assert (blobs(tmp_path), markers(tmp_path)) == ({NAME, unmarked}, {NAME})
    again.sync(())
    assert (blobs(tmp_path), markers(tmp_path)) == ({unmarked}, set())


def test_a_full_cache_does_not_evict_them_when_it_is_opened(tmp_path: Path) -> None:
    cache, held = open_blobs(tmp_path, 1 << 20)
    held.keep(TWO, read)
    cache.put(b"newer" * 200)
    cache, _ = open_blobs(tmp_path, 1000, TWO)
    assert blobs(tmp_path) == {NAME}


def test_a_blob_that_is_here_for_another_reason_is_not_deleted(tmp_path: Path) -> None:
    """A device sends the very bytes of the weights to another one."""
    cache = BlobCache(tmp_path / "blobs", 2000)
    cache.put(DATA)
    cache.pin(NAME)
    held = RelayedBlobs(cache, tmp_path / "relays")
    held.announce([NAME])
    held.keep(TWO, read)
    assert markers(tmp_path) == set()
    held.sync(())
    assert cache.has(NAME)
    opened(tmp_path)
    assert blobs(tmp_path) == {NAME}


def test_more_bytes_than_are_held_at_a_time_are_rejected(tmp_path: Path) -> None:
    held = opened(tmp_path, limit=2 * len(DATA) - 1)
    held.keep(TWO[:1], read)
    with pytest.raises(Rejection, match="no space for more blobs between devices"):
        held.keep(TWO[1:], read)
    held.sync(())
    held.keep(TWO[1:], read)


def test_what_cannot_be_read_is_rejected(tmp_path: Path) -> None:
    def gone(name: str) -> bytes:
        raise WireError("It is gone.", code="wire.blob")

    with pytest.raises(Rejection, match=r"its blob for b: It is gone\."):
        opened(tmp_path).keep(TWO, gone)


def test_a_blob_that_an_exchange_delivers_and_discards_is_not_delivered(tmp_path: Path) -> None:
    """It would be deleted while the task that names it is on its way."""
    held, warnings = opened(tmp_path), list[str]()
    both = (relay("a", "b"), relay("c", "b"))
    held.keep(both, read)
    question = Question("b", 1, relays=both)
    planned = Exchange("fit", 1, (question,), {}, 1, 1, 9.0, discarded=both[:1])
    (kept,) = held.available(planned, warnings.append).questions
    assert (kept.relays, warnings) == (both[1:], [])


def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "relays").write_text("a file")
    with pytest.raises(StorageError):
        opened(tmp_path)

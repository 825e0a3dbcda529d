"""Chunks, and the cache: bounded, checked, shared by threads, taken over by the next process."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.errors import StorageError, WireError
from edgefed.files.writing import write_atomic
from edgefed.wire import blobs, limits
from edgefed.wire.blobs import BlobCache, chunk, chunk_count, chunk_span
from edgefed.wire.tensors import digest


def blob(number: int, size: int = 100) -> bytes:
    return random.Random(number).randbytes(size)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 4), st.integers(-1, 1))
def test_chunks_put_together_are_the_blob(whole: int, more: int) -> None:
    data = bytes(max(0, whole * limits.CHUNK_BYTES + more))
    pieces = [chunk(data, index) for index in range(chunk_count(len(data)))]
    assert b"".join(pieces) == data
    assert all(0 < len(piece) <= limits.CHUNK_BYTES for piece in pieces)
    assert all(len(piece) == limits.CHUNK_BYTES for piece in pieces[:-1])


@pytest.mark.parametrize(("size", "index"), [(0, 0), (1, 1), (1, -1), (limits.CHUNK_BYTES, 1)])
def test_there_is_no_chunk_outside_a_blob(size: int, index: int) -> None:
    with pytest.raises(WireError) as caught:
        chunk_span(size, index)
    assert caught.value.code == "wire.chunk"
    with pytest.raises(WireError):
        chunk(bytes(size), index)


def test_what_is_put_can_be_got(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path / "deep" / "cache", 1000)
    name = cache.put(blob(1))
    assert name == digest(blob(1)) == cache.put(blob(1))
    assert cache.get(name) == blob(1)
    assert cache.has(name)
    assert (cache.size(name), cache.total) == (100, 100)
    cache.remove(name)
    assert not cache.has(name)
    assert (cache.get(name), cache.size(name), cache.chunk(name, 0)) == (None, None, None)
    assert list((tmp_path / "deep" / "cache").iterdir()) == []


def test_a_held_blob_has_no_file_and_goes_with_its_last_pin(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, 1000)
    name = digest(blob(1))
    for _ in range(2):
        cache.pin(name)
        cache.hold(name, blob(1))
    assert (cache.get(name), cache.chunk(name, 0), cache.total) == (blob(1), blob(1), 100)
    assert list(tmp_path.iterdir()) == []
    cache.unpin(name)
    assert cache.has(name)
    cache.unpin(name)
    assert (cache.has(name), cache.get(name), cache.total) == (False, None, 0)


def test_a_held_blob_that_is_put_gets_its_file(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, 1000)
    name = digest(blob(1))
    cache.pin(name)
    cache.hold(name, blob(1))
    assert cache.put(blob(1)) == name
    cache.unpin(name)
    assert BlobCache(tmp_path, 1000).get(name) == cache.get(name) == blob(1)


@pytest.mark.parametrize("limit", ["UNWRITTEN_BYTES", "MAX_RECENT_BLOB"])
def test_blobs_beyond_the_memory_for_held_ones_are_files(
    limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blobs, limit, 150 if limit == "UNWRITTEN_BYTES" else 100)
    cache, names = BlobCache(tmp_path, 10_000), []
    for number, size in ((1, 100), (2, 101), (3, 101)):
        names.append(digest(blob(number, size)))
        cache.pin(names[-1])
        cache.hold(names[-1], blob(number, size))
    assert {path.name for path in tmp_path.iterdir()} == set(names[1:])
    assert cache.get(names[1]) == blob(2, 101)
    for name in names:
        cache.unpin(name)
    cache.pin(names[0])
    cache.hold(names[0], blob(1))
    assert not (tmp_path / names[0]).exists(), "the memory is free again"


def test_the_oldest_unused_goes_first(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, 300)
    first, second, third = (cache.put(blob(number)) for number in range(3))
    assert cache.get(first) is not None
    fourth = cache.put(blob(3))
    assert [cache.has(name) for name in (first, second, third, fourth)] == [True, False, True, True]
    assert cache.total == 300


def test_small_blobs_are_limited_in_number(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, 1 << 20, limit_blobs=3)
    cache.pin(digest(blob(0)))
    names = [cache.put(blob(number)) for number in range(20)]
    assert [number for number, name in enumerate(names) if cache.has(name)] == [0, 18, 19]
    assert len(list(tmp_path.iterdir())) == 3
    assert cache.total == 300
    cache.unpin(names[0])
    cache.put(blob(20))
    assert not cache.has(names[0])
    assert len(BlobCache(tmp_path, 1 << 20, limit_blobs=2)) == 2


@settings(max_examples=25, deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from("prdsul"), st.integers(0, 9)), max_size=40))
def test_the_bytes_counted_are_those_on_disk(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("counted")
    cache = BlobCache(folder, 700)
    for step, number in steps:
        data = blob(number, 100 + 10 * number)
        name = digest(data)
        match step:
            case "p":
                cache.put(data)
            case "r":
                cache.remove(name)
            case "d":
                cache.discard(name)
            case "s":
                cache.shed({name})
            case "u":
                cache.pin(name)
            case "l":
                (folder / name).unlink(missing_ok=True)
                cache.get(name)
        assert cache.total == sum(path.stat().st_size for path in folder.iterdir())


def test_pinned_blobs_stay_as_long_as_they_are_pinned(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, 150)
    cache.pin(digest(blob(0)))
    first = cache.put(blob(0))
    cache.pin(first)
    second = cache.put(blob(1))
    assert cache.has(first)
    assert cache.has(second)
    cache.unpin(first)
    third = cache.put(blob(2))
    assert [cache.has(name) for name in (first, second, third)] == [True, False, True]
    cache.unpin(first)
    assert not cache.has(first)
    cache.unpin(first)
    assert cache.has(third)


def test_a_blob_over_the_limit_is_kept_until_the_next(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, 50)
    first = cache.put(blob(0))
    assert cache.get(first) == blob(0)
    second = cache.put(blob(1, 20))
    assert not cache.has(first)
    assert cache.has(second)


def test_the_next_process_takes_over_in_order_of_use(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, 300)
    names = [cache.put(blob(number)) for number in range(3)]
    for age, name in zip((3, 1, 2), names, strict=True):
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    (tmp_path / f".{names[0]}.0123abcd.part").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("not a blob")
    later = BlobCache(tmp_path, 200)
    assert [later.has(name) for name in names] == [False, True, True]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names[1:], "notes.txt"])
    later.put(blob(4))
    assert [later.has(name) for name in names] == [False, True, False]


def test_use_is_remembered_by_the_next_process(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, 300)
    names = [cache.put(blob(number)) for number in range(3)]
    for name in names:
        os.utime(tmp_path / name, (1000, 1000))
    cache.get(names[0])
    assert BlobCache(tmp_path, 100).has(names[0])


def test_a_damaged_file_is_dropped(tmp_path: Path) -> None:
    name = BlobCache(tmp_path, 1000).put(blob(0))
    (tmp_path / name).write_bytes(b"\x00" * 100)
    cache = BlobCache(tmp_path, 1000)
    assert cache.has(name)
    assert cache.get(name) is None
    assert not cache.has(name)
    assert not (tmp_path / name).exists()
    assert cache.put(blob(0)) == name
    assert cache.get(name) == blob(0)


def test_putting_over_a_damaged_file_mends_it(tmp_path: Path) -> None:
    name = BlobCache(tmp_path, 1000).put(blob(0))
    (tmp_path / name).write_bytes(b"short")
    cache = BlobCache(tmp_path, 1000)
    cache.put(blob(0))
    assert cache.get(name) == blob(0)
    assert cache.total == 100


def test_a_file_that_somebody_deleted_is_forgotten(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, 1000)
    first, second = cache.put(blob(0)), cache.put(blob(1))
    (tmp_path / first).unlink()
    (tmp_path / second).unlink()
    assert cache.get(first) is None
    assert cache.chunk(second, 0) is None
    assert cache.total == 0


def test_small_blobs_put_last_are_read_from_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blobs, "RECENT_BYTES", 250)
    monkeypatch.setattr(blobs, "MAX_RECENT_BLOB", 120)
    cache = BlobCache(tmp_path, 1000)
    sizes = (100, 100, 100, 200, 50)
    names = [cache.put(blob(number, size)) for number, size in enumerate(sizes)]
    read: list[str] = []
    from_disk = Path.read_bytes

    def noted(path: Path) -> bytes:
        read.append(path.name)
        return from_disk(path)

    monkeypatch.setattr(Path, "read_bytes", noted)

    def reads() -> list[int]:
        read.clear()
        whole = [cache.get(name) for name in names]
        assert whole == [blob(number, size) for number, size in enumerate(sizes)]
        return [names.index(name) for name in read]

    assert reads() == [0, 3], "the first is pushed out, and the fourth is too large"
    assert cache.chunk(names[1], 0) == blob(1)
    cache.remove(names[1])
    assert cache.get(names[1]) is None
    cache.put(blob(1))
    assert reads() == [0, 3], "a removed blob takes no room"


def test_one_chunk_is_read_without_the_rest(tmp_path: Path) -> None:
    data = blob(0, 2 * limits.CHUNK_BYTES + 5)
    name = BlobCache(tmp_path, 1 << 20).put(data)
    cache = BlobCache(tmp_path, 1 << 20)
    for _ in range(2):
        assert [cache.chunk(name, index) for index in (0, 1, 2)] == [
            chunk(data, index) for index in (0, 1, 2)
        ]
    with pytest.raises(WireError):
        cache.chunk(name, 3)


def test_clear_keeps_pins(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, 100)
    name = cache.put(blob(0))
    cache.pin(name)
    cache.clear()
    assert cache.total == 0
    cache.put(blob(0))
    cache.put(blob(1))
    assert cache.has(name)


@pytest.mark.parametrize("name", ["", "../secret", "a" * 63, "A" * 64, "a" * 64 + "\n"])
def test_only_digests_are_names(tmp_path: Path, name: str) -> None:
    cache = BlobCache(tmp_path / "cache", 100)
    (tmp_path / "secret").write_bytes(b"x")
    assert cache.get(name) is None
    assert not cache.has(name)
    cache.remove(name)
    assert (tmp_path / "secret").exists()
    with pytest.raises(WireError):
        cache.pin(name)


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError):
        BlobCache(tmp_path / "file", 100)


def test_a_blob_that_is_evicted_while_it_is_put_again_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = BlobCache(tmp_path, 100)

    def write_late(path: Path, data: bytes, *, sync: bool) -> None:
        """Write, and let others put the same blob and evict it before its writer goes on."""
        monkeypatch.setattr(blobs, "write_atomic", write_atomic)
        write_atomic(path, data, sync=sync)
        cache.put(data)
        cache.put(blob(2))

    monkeypatch.setattr(blobs, "write_atomic", write_late)
    name = cache.put(blob(1))
    assert cache.get(name) == blob(1)
    assert cache.total == sum(path.stat().st_size for path in tmp_path.iterdir()) == 100


def test_waits_for_the_disk_of_several_blobs_overlap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write waits for the others to wait too, which writes one after another never would."""
    together, sync = threading.Barrier(4, timeout=30), os.fsync
    synced: list[int] = []

    def wait(file: int) -> None:
        together.wait()
        sync(file)
        synced.append(file)

    monkeypatch.setattr(os, "fsync", wait)
    cache = BlobCache(tmp_path, 2**20)
    cache.put_all([blob(number) for number in range(4)])
    assert len(synced) == 4
    assert [cache.get(digest(blob(number))) for number in range(4)] == [*map(blob, range(4))]


@pytest.mark.parametrize("count", [0, 1])
def test_no_blob_and_one_blob_are_several(count: int, tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, 2**20)
    cache.put_all([blob(1)][:count])
    assert cache.has(digest(blob(1))) == bool(count)


def test_several_blobs_that_the_disk_does_not_take_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = BlobCache(tmp_path, 2**20)

    def full(path: Path, data: bytes, *, sync: bool) -> None:
        if data == blob(2):
            raise StorageError("The disk is full.", code="storage.full")
        write_atomic(path, data, sync=sync)

    monkeypatch.setattr(blobs, "write_atomic", full)
    with pytest.raises(StorageError):
        cache.put_all([blob(number) for number in range(4)])
    assert not cache.has(digest(blob(2)))


def test_threads_share_it(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, 500)
    wrong: list[str] = []

    def work(seed: int) -> None:
        draws = random.Random(seed)
        for _ in range(60):
            number = draws.randrange(8)
            name = digest(blob(number))
            match draws.randrange(4):
                case 0:
                    cache.put(blob(number))
                case 1:
                    cache.pin(name)
                    cache.put(blob(number))
                    if cache.get(name) != blob(number):
                        wrong.append(f"pinned {number}")
                    cache.unpin(name)
                case 2:
                    cache.chunk(name, 0)
                case _:
                    if cache.get(name) not in (None, blob(number)):
                        wrong.append(f"got {number}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert cache.total == sum(path.stat().st_size for path in tmp_path.iterdir()) <= 500


def test_a_held_blob_with_a_file_of_an_earlier_process_keeps_it(tmp_path: Path) -> None:
    name = BlobCache(tmp_path, 1000).put(blob(1))
    cache = BlobCache(tmp_path, 1000)
    cache.pin(name)
    cache.hold(name, blob(1))
    cache.unpin(name)
    assert cache.get(name) == blob(1)
    cache.remove(name)
    assert list(tmp_path.iterdir()) == [], "its file was known"


def test_a_blob_whose_file_was_deleted_is_written_again(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, 1000)
    name = cache.put(blob(1))
    (tmp_path / name).unlink()
    assert cache.put(blob(1)) == name
    assert (tmp_path / name).read_bytes() == blob(1)

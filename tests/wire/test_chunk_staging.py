"""Staging: chunks in any order, killed and resumed, and never a wrong blob."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import edgefed
from edgefed.errors import StorageError, WireError
from edgefed.wire import limits
from edgefed.wire.blobs import MAX_RECENT_BLOB, BlobCache, chunk, chunk_count
from edgefed.wire.chunk_staging import Staging, prune
from edgefed.wire.tensors import digest
from tests.wire.memory import at_most

SIZE = 5 * limits.CHUNK_BYTES + 17
DATA = random.Random(0).randbytes(SIZE)
NAME = digest(DATA)
COUNT = 6


@contextmanager
def staging(folder: Path, size: int = SIZE, name: str = NAME) -> Iterator[Staging]:
    with closing(Staging(folder, name, size)) as opened:
        yield opened


def test_chunks_in_any_order_make_the_blob(tmp_path: Path) -> None:
    with staging(tmp_path / "deep") as incoming:
        assert (incoming.count, incoming.received, incoming.fraction) == (COUNT, 0, 0.0)
        for index in (3, 0, 5, 1, 4):
            assert incoming.write(index, chunk(DATA, index))
            assert not incoming.write(index, chunk(DATA, index))
        assert incoming.missing(10) == (2,)
        assert incoming.received == 5
        with pytest.raises(WireError) as caught:
            incoming.finish()
        assert caught.value.code == "wire.incomplete"
        assert incoming.write(2, chunk(DATA, 2))
        assert incoming.fraction == 1.0
        assert incoming.missing(10) == ()
        assert incoming.finish() == DATA
    assert list((tmp_path / "deep").iterdir()) == []


def test_missing_gives_the_first_few(tmp_path: Path) -> None:
    with staging(tmp_path) as incoming:
        incoming.write(1, chunk(DATA, 1))
        assert incoming.missing(3) == (0, 2, 3)
        assert incoming.missing(0) == ()


def test_an_abandoned_staging_is_resumed(tmp_path: Path) -> None:
    abandoned = Staging(tmp_path, NAME, SIZE)
    abandoned.write(4, chunk(DATA, 4))
    with staging(tmp_path) as incoming:
        assert incoming.received == 1
        assert incoming.missing(9) == (0, 1, 2, 3, 5)
        for index in incoming.missing(9):
            assert not incoming.complete
            incoming.write(index, chunk(DATA, index))
        assert incoming.complete
        assert incoming.finish() == DATA
    abandoned.close()


KILLED = """
import random, sys
from pathlib import Path
from edgefed.wire.blobs import chunk
from edgefed.wire.chunk_staging import Staging
from edgefed.wire.tensors import digest
data = random.Random(0).randbytes(int(sys.argv[2]))
incoming = Staging(Path(sys.argv[1]), digest(data), len(data))
while True:
    for index in range(incoming.count):
        incoming.write(index, chunk(data, index))
        print(index, flush=True)
    incoming = Staging(Path(sys.argv[1]), digest(data), len(data))
"""


def test_a_killed_process_leaves_what_it_wrote(tmp_path: Path) -> None:
    root = Path(edgefed.__file__).parents[1]
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(SIZE)]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        for _ in range(3):
            child.stdout.readline()
        child.send_signal(signal.SIGKILL)
    with staging(tmp_path) as incoming:
        assert incoming.received >= 3
        for index in incoming.missing(COUNT):
            incoming.write(index, chunk(DATA, index))
        assert incoming.finish() == DATA


@pytest.mark.parametrize("index", [-1, COUNT, 10**9])
def test_a_chunk_the_blob_does_not_have(tmp_path: Path, index: int) -> None:
    with staging(tmp_path) as incoming, pytest.raises(WireError) as caught:
        incoming.write(index, b"x")
    assert caught.value.code == "wire.chunk"


@pytest.mark.parametrize("length", [0, 16, 18, limits.CHUNK_BYTES])
def test_a_chunk_of_another_length(tmp_path: Path, length: int) -> None:
    with staging(tmp_path) as incoming:
        with pytest.raises(WireError) as caught:
            incoming.write(COUNT - 1, bytes(length))
        assert caught.value.code == "wire.chunk"
        assert incoming.received == 0


def test_a_wrong_digest_drops_everything(tmp_path: Path) -> None:
    with staging(tmp_path) as incoming:
        for index in range(COUNT):
            incoming.write(index, bytes(len(chunk(DATA, index))))
        with pytest.raises(WireError) as caught:
            incoming.finish()
        assert caught.value.code == "wire.digest"
    assert list(tmp_path.iterdir()) == []
    with staging(tmp_path) as again:
        assert again.received == 0


def test_another_size_begins_again(tmp_path: Path) -> None:
    with staging(tmp_path) as incoming:
        incoming.write(0, chunk(DATA, 0))
    with staging(tmp_path, SIZE - 1) as other:
        assert other.received == 0
    with staging(tmp_path) as back:
        assert back.received == 0


@pytest.mark.parametrize("size", [0, -1, limits.MAX_BLOB_BYTES + 1])
def test_sizes_that_no_blob_has(tmp_path: Path, size: int) -> None:
    with pytest.raises(WireError) as caught:
        Staging(tmp_path, NAME, size)
    assert caught.value.code == "wire.too_large"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "../x", "a" * 65])
def test_names_that_no_blob_has(tmp_path: Path, name: str) -> None:
    with pytest.raises(WireError) as caught:
        Staging(tmp_path, name, 10)
    assert caught.value.code == "wire.digest"


def test_the_largest_blob_takes_no_memory_before_it_comes(tmp_path: Path) -> None:
    with at_most(1 << 20), staging(tmp_path, limits.MAX_BLOB_BYTES) as incoming:
        assert incoming.count == chunk_count(limits.MAX_BLOB_BYTES)
        assert incoming.missing(2) == (0, 1)
    assert sum(path.stat().st_blocks for path in tmp_path.iterdir()) < 1000


@settings(max_examples=30, deadline=None)
@given(
    st.binary(max_size=12) | st.binary(min_size=COUNT, max_size=COUNT),
    st.sampled_from([0, 5, SIZE - 1, SIZE, SIZE + 1]),
    st.booleans(),
)
def test_whatever_lies_on_disk_ends_in_the_blob_or_a_wrong_digest(
    tmp_path_factory: pytest.TempPathFactory, marks: bytes, length: int, right: bool
) -> None:
    folder = tmp_path_factory.mktemp("staging")
    (folder / f"{NAME}.map").write_bytes(marks)
    (folder / f"{NAME}.staging").write_bytes((DATA + b"x")[:length] if right else bytes(length))
    for _ in range(2):
        with staging(folder) as incoming:
            for index in incoming.missing(COUNT):
                incoming.write(index, chunk(DATA, index))
            try:
                assert incoming.finish() == DATA
            except WireError as error:
                assert error.code == "wire.digest"
                assert not right
                continue
        break
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_said_and_the_chunk_counts_as_missing(tmp_path: Path) -> None:
    with staging(tmp_path) as incoming:
        good = incoming._files
        assert good is not None
        with Path("/dev/full").open("r+b", buffering=0) as full:
            incoming._files = (full, good[1])
            with pytest.raises(StorageError) as caught:
                incoming.write(0, chunk(DATA, 0))
        assert caught.value.code == "storage.full"
        assert incoming.received == 0
        incoming._files = good
        assert incoming.write(0, chunk(DATA, 0))


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError):
        Staging(tmp_path / "file", NAME, SIZE)
    (tmp_path / f"{NAME}.staging").mkdir()
    with pytest.raises(StorageError):
        Staging(tmp_path, NAME, SIZE)


def test_a_blob_of_one_chunk_needs_no_file(tmp_path: Path) -> None:
    data = bytes(range(100))
    for sent in (data, data[::-1]):
        incoming = Staging(tmp_path / "staging", digest(data), len(data))
        assert (incoming.missing(8), incoming.complete) == ((0,), False)
        assert incoming.write(0, sent)
        assert not incoming.write(0, sent)
        assert incoming.complete
        assert not (tmp_path / "staging").exists()
        if sent == data:
            assert incoming.finish() == data
        else:
            with pytest.raises(WireError):
                incoming.finish()


def test_drop_and_prune_leave_only_what_is_wanted(tmp_path: Path) -> None:
    others = ["a" * 64, "b" * 64]
    for name in [NAME, *others]:
        with staging(tmp_path, SIZE, name):
            pass
    (tmp_path / "notes.txt").write_text("stays")
    prune(tmp_path, {NAME, others[0]})
    assert {path.stem for path in tmp_path.iterdir()} == {NAME, others[0], "notes"}
    Staging(tmp_path, others[0], SIZE).drop()
    assert {path.stem for path in tmp_path.iterdir()} == {NAME, "notes"}
    prune(tmp_path / "absent", set())


LARGE = random.Random(1).randbytes(4 * MAX_RECENT_BLOB)


def test_the_file_of_a_large_blob_becomes_that_of_the_cache(tmp_path: Path) -> None:
    name, cache = digest(LARGE), BlobCache(tmp_path / "blobs", 1 << 30)
    with staging(tmp_path / "staging", len(LARGE), name) as incoming:
        for index in range(incoming.count):
            incoming.write(index, chunk(LARGE, index))
        with at_most(MAX_RECENT_BLOB):
            incoming.move_to(cache)
    assert list((tmp_path / "staging").iterdir()) == []
    assert cache.get(name) == LARGE
    assert cache.total == len(LARGE)
    assert (tmp_path / "blobs" / name).stat().st_mode & 0o777 == 0o600
    assert BlobCache(tmp_path / "blobs", 1 << 30).get(name) == LARGE


def test_a_large_file_with_other_bytes_is_not_moved(tmp_path: Path) -> None:
    name, cache = digest(LARGE), BlobCache(tmp_path / "blobs", 1 << 30)
    wrong = bytes([LARGE[0] ^ 1]) + LARGE[1:]
    with staging(tmp_path / "staging", len(LARGE), name) as incoming:
        for index in range(incoming.count):
            if index:
                incoming.write(index, chunk(wrong, index))
        with pytest.raises(WireError) as caught:
            incoming.move_to(cache)
        assert caught.value.code == "wire.incomplete"
        incoming.write(0, chunk(wrong, 0))
        with pytest.raises(WireError) as caught:
            incoming.move_to(cache)
    assert caught.value.code == "wire.digest"
    assert list((tmp_path / "staging").iterdir()) == []
    assert not cache.has(name)


def test_a_moved_file_makes_room_like_any_other_blob(tmp_path: Path) -> None:
    name, cache = digest(LARGE), BlobCache(tmp_path / "blobs", len(LARGE) + 10)
    old = cache.put(b"0123456789a")
    with staging(tmp_path / "staging", len(LARGE), name) as incoming:
        for index in range(incoming.count):
            incoming.write(index, chunk(LARGE, index))
        incoming.move_to(cache)
    assert (cache.has(name), cache.has(old)) == (True, False)

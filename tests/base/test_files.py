"""Files that are whole or absent, and errors that tell what stands in the way."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgefed.errors import StorageError
from edgefed.files import make_folder, storage_error, write_atomic


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """Let this process write no file beyond ``size`` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_and_its_folders_are_made(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    write_atomic(path, b"one")
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert [each.name for each in path.parent.iterdir()] == ["file"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"old")
    with files_up_to(1000), pytest.raises(StorageError) as caught:
        write_atomic(path, bytes(2000))
    assert caught.value.code == "storage.limit"
    assert str(path) in caught.value.message
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_folder_in_the_place_of_the_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file" / "inside").mkdir(parents=True)
    with pytest.raises(StorageError) as caught:
        write_atomic(tmp_path / "file", b"x")
    assert caught.value.code == "storage.failed"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_file_in_the_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StorageError):
            make_folder(path)
    with pytest.raises(StorageError):
        write_atomic(tmp_path / "file" / "below", b"x")


def test_a_folder_may_be_there_already(tmp_path: Path) -> None:
    assert make_folder(tmp_path / "a" / "b") == make_folder(tmp_path / "a" / "b")


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (errno.ENOSPC, "storage.full", "The disk is full"),
        (errno.EDQUOT, "storage.full", "The disk is full"),
        (errno.EFBIG, "storage.limit", "larger than"),
        (errno.EACCES, "storage.failed", "Permission denied"),
        (errno.EROFS, "storage.failed", "Read-only"),
    ],
)
def test_errors_say_what_to_do(number: int, code: str, said: str) -> None:
    error = storage_error(Path("/some/where"), OSError(number, os.strerror(number)))
    assert error.code == code
    assert said in error.message
    assert "/some/where" in error.message
    assert error.hint

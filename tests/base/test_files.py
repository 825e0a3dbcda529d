"""Atomic file writes, and errors that name the obstacle."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgefed.errors import StorageError
from edgefed.files.writing import (
    make_folder,
    make_state_private,
    open_private,
    remove_partial_files,
    storage_error,
    write_atomic,
    write_output,
    write_shared,
)
from tests.support.open_modes import open_to_others, umask


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


@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_state_is_private_and_outputs_follow_the_umask(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        write_atomic(tmp_path / "state" / "inner" / "file", b"x")
        make_folder(tmp_path / "state" / "folder" / "inner")
        with open_private(tmp_path / "state" / "log", "ab") as file:
            file.write(b"line")
        write_output(tmp_path / "output" / "file", b"x")
    tmp_path.chmod(0o700)
    output, inner = oct(0o40777 & ~mask), oct(0o100666 & ~mask)
    assert open_to_others(tmp_path) == {"output": output, "output/file": inner}


def test_the_open_state_of_an_older_version_is_closed(tmp_path: Path) -> None:
    state, elsewhere = tmp_path / "state", tmp_path / "elsewhere"
    with umask(0):
        for place in ("coordinator/f/runs/r-1/model", "trust/f/access/acl", "data/images"):
            write_output(state / place, b"x")
        write_output(state / "trust/f/device/key.pem", b"x")
        write_output(elsewhere / "photo", b"x")
    (state / "agents").symlink_to(elsewhere)
    (state / "coordinator" / "linked").symlink_to(elsewhere / "photo")
    make_state_private(state)
    kept = {"trust/f/access/acl": "0o100666", "trust/f/device/key.pem": "0o100666"}
    assert open_to_others(state) == kept
    assert set(open_to_others(elsewhere)) == {".", "photo"}
    make_state_private(tmp_path / "missing")


def test_a_folder_with_other_things_stays_open_around_the_state(tmp_path: Path) -> None:
    with umask(0):
        write_output(tmp_path / "home" / "coordinator" / "file", b"x")
        write_output(tmp_path / "home" / "page.html", b"x")
    make_state_private(tmp_path / "home")
    assert set(open_to_others(tmp_path / "home")) == {".", "page.html"}


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
        (errno.EFBIG, "storage.limit", "exceeds the largest file"),
        (errno.EACCES, "storage.failed", "Permission denied"),
        (errno.EROFS, "storage.read_only", "Read-only"),
    ],
)
def test_errors_say_what_to_do(number: int, code: str, said: str) -> None:
    error = storage_error(Path("/some/where"), OSError(number, os.strerror(number)))
    assert error.code == code
    assert said in error.message
    assert "/some/where" in error.message
    assert error.hint


# -- what a killed writer leaves ------------------------------------------------------------------

STOPPED_WRITER = """
import os, sys
from pathlib import Path
from edgefed.files.writing import write_atomic

def stop(descriptor):
    print("written", flush=True)
    sys.stdin.read()

os.fsync = stop
write_atomic(Path(sys.argv[1]), b"new")
"""


@contextmanager
def stopped_writer(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has written its file but not renamed it; it goes on at the end of stdin."""
    writer = subprocess.Popen(
        [sys.executable, "-c", STOPPED_WRITER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    try:
        assert writer.stdout.readline() == "written\n"
        yield writer
    finally:
        writer.kill()
        writer.communicate()


def test_the_next_process_removes_what_a_killed_writer_left(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    with stopped_writer(path) as writer:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    assert [each.suffix for each in tmp_path.iterdir()] == [".part"]
    write_atomic(tmp_path / "other", b"x")
    assert [each.name for each in tmp_path.iterdir()] == ["other"]


def test_the_file_of_a_live_writer_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    with stopped_writer(path) as writer:
        write_atomic(path, b"old")
        remove_partial_files(tmp_path)
        writer.communicate("")
        assert writer.returncode == 0
    assert path.read_bytes() == b"new"
    assert [each.name for each in tmp_path.iterdir()] == ["status.json"]


def test_a_writer_whose_file_was_removed_before_it_held_the_lock_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock
    taken: list[int] = []

    def late(file: int, operation: int) -> None:
        if not operation & fcntl.LOCK_NB and not taken:
            taken.append(file)
            remove_partial_files(tmp_path)
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    write_atomic(tmp_path / "file", b"x")
    assert taken
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_cleaning_all_the_time_costs_no_writer_its_file(tmp_path: Path) -> None:
    ended = threading.Event()

    def clean() -> None:
        while not ended.is_set():
            remove_partial_files(tmp_path)

    cleaner = threading.Thread(target=clean)
    cleaner.start()
    try:
        for number in range(100):
            write_atomic(tmp_path / f"file-{number}", b"x")
    finally:
        ended.set()
        cleaner.join()
    assert len(list(tmp_path.iterdir())) == 100


def test_other_files_are_no_partial_files(tmp_path: Path) -> None:
    names = {
        ".part",
        "a.0123abcd.part",
        ".a.0123abc.part",
        ".a.0123abcd.part.b",
        ".a.x123abcd.part",
    }
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / ".folder.0123abcd.part").mkdir()
    (tmp_path / ".file.0123abcd.part").touch()
    remove_partial_files(tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {*names, ".folder.0123abcd.part"}


def test_a_shared_file_keeps_its_rights_and_a_new_one_is_private(tmp_path: Path) -> None:
    path = tmp_path / "acl"
    write_shared(path, b"one")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    os.utime(path, (1, 1))
    write_shared(path, b"two")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"two", 0o640)
    assert path.stat().st_mtime > 1, "a broker sees that it has changed"

"""Only one process uses a folder, however the previous one ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from edgefed.errors import NotAllowedError, StorageError
from edgefed.files.writing import takes_writes, write_atomic
from edgefed.process.lock import FolderLock, is_locked

HOLD = """
import sys, time
from pathlib import Path
from edgefed.process.lock import FolderLock
held = FolderLock(Path(sys.argv[1]), "a sleeper")
print("held", flush=True)
time.sleep(600)
"""


def test_a_folder_has_one_holder(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    held = FolderLock(folder, "a coordinator")
    with pytest.raises(NotAllowedError) as caught:
        FolderLock(folder, "another")
    assert caught.value.code == "state.locked"
    assert f"in use by a coordinator, process {os.getpid()}" in caught.value.message
    assert is_locked(folder)
    held.release()
    assert not is_locked(folder)
    FolderLock(folder, "another").release()


def test_nothing_is_written_in_place_of_a_held_folder_that_was_moved(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    held = FolderLock(folder, "a coordinator")
    file = folder / "runs" / "row"
    write_atomic(file, b"first")
    folder.rename(tmp_path / "moved")
    with pytest.raises(StorageError, match=f"{folder} was moved or deleted") as caught:
        write_atomic(file, b"second")
    assert (caught.value.code, takes_writes(file)) == ("storage.moved", False)
    write_atomic(tmp_path / "elsewhere" / "file", b"")
    assert not folder.exists()
    (tmp_path / "moved").rename(folder)
    assert takes_writes(file)
    write_atomic(file, b"second")
    (folder / "lock").rename(folder / "other")
    (folder / "lock").touch()
    assert not takes_writes(file), "another folder in its place is not held"
    held.release()
    assert takes_writes(file)


def test_other_folders_are_free(tmp_path: Path) -> None:
    held = FolderLock(tmp_path / "one", "a coordinator")
    FolderLock(tmp_path / "two", "a coordinator").release()
    held.release()


def test_a_folder_that_is_not_there_is_not_locked(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "absent")
    assert not (tmp_path / "absent").exists()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError):
        FolderLock(tmp_path / "file", "a coordinator")


def test_a_killed_holder_holds_no_longer(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert is_locked(tmp_path)
        with pytest.raises(NotAllowedError, match=f"a sleeper, process {process.pid}"):
            FolderLock(tmp_path, "me")
        process.send_signal(signal.SIGKILL)
        process.wait()
    FolderLock(tmp_path, "me").release()

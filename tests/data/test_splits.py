"""Folders of shards: written atomically, without loss of the user's files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edgefed.data.base.types import Shard
from edgefed.data.devices.shard_folder import INDEX, check_target, read_split, write_split
from edgefed.errors import DataError, StorageError, UsageError
from edgefed.files.samples import Samples

ABOUT = {"seed": 5}


def _shards(count: int = 3) -> list[tuple[str, Shard]]:
    def samples(number: int, of: int) -> Samples:
        return Samples(np.full((of, 2), number, np.float32), np.full(of, number))

    return [(f"device-0{n}", Shard(samples(n, 4 + n), samples(n, 1), 5)) for n in range(count)]


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_folder_says_what_it_is_and_reads_back(tmp_path: Path) -> None:
    out = tmp_path / "new" / "shards"
    index = write_split(out, _shards(), ABOUT, force=False)
    assert json.loads((out / INDEX).read_text()) == index
    assert index["seed"] == 5
    assert [each["train"] for each in index["devices"]] == [4, 5, 6]
    assert index["devices"][1]["labels"] == [0, 5, 0, 0, 0]
    assert index["totals"] == {"train": 15, "test": 3, "labels": [4, 5, 6, 0, 0]}
    for (name, shard), (wanted_name, wanted) in zip(read_split(out), _shards(), strict=True):
        assert name == wanted_name
        assert np.array_equal(shard.train.inputs, wanted.train.inputs)
    assert _names(out.parent) == ["shards"]


def test_an_empty_folder_is_taken_and_a_full_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    write_split(tmp_path / "a", _shards(), ABOUT, force=False)
    with pytest.raises(UsageError, match="is not empty") as caught:
        write_split(tmp_path / "a", _shards(1), ABOUT, force=False)
    assert "--force" in caught.value.hint
    assert len(list(read_split(tmp_path / "a"))) == 3
    (tmp_path / "file").write_text("mine")
    for force in (True, False):
        with pytest.raises(UsageError, match="is a file"):
            check_target(tmp_path / "file", force)


def test_force_replaces_the_split_and_keeps_what_is_not_its_own(tmp_path: Path) -> None:
    out = tmp_path / "a"
    write_split(out, _shards(3), ABOUT, force=False)
    (out / "notes.txt").write_text("mine")
    (out / "other.npz").write_bytes(b"mine too")
    write_split(out, _shards(2), ABOUT, force=True)
    assert _names(out) == ["device-00.npz", "device-01.npz", "notes.txt", "other.npz", INDEX]
    assert (out / "notes.txt").read_text() == "mine"
    assert _names(tmp_path) == ["a"]


@pytest.mark.parametrize("force", [True, False])
@pytest.mark.parametrize("trouble", [KeyboardInterrupt, StorageError("full")])
def test_trouble_half_way_leaves_what_was_there(
    tmp_path: Path, force: bool, trouble: BaseException | type[BaseException]
) -> None:
    out = tmp_path / "a"
    if force:
        write_split(out, _shards(1), ABOUT, force=False)

    def broken() -> Iterator[tuple[str, Shard]]:
        yield from _shards(2)
        raise trouble

    with pytest.raises((KeyboardInterrupt, StorageError)):
        write_split(out, broken(), ABOUT, force=force)
    assert _names(tmp_path) == (["a"] if force else [])
    if force:
        assert _names(out) == ["device-00.npz", INDEX]


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    # The limit on a file's size stops a write as a full disk does, in a process of its own.
    program = """
import resource, sys
from pathlib import Path
from tests.data.test_splits import ABOUT, _shards
from edgefed.data.devices.shard_folder import write_split
from edgefed.errors import StorageError
resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
try:
    write_split(Path(sys.argv[1]), _shards(), ABOUT, force=False)
except StorageError as error:
    sys.exit(error.code)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "a")],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.stderr.strip() == "storage.limit"
    assert _names(tmp_path) == []


def test_a_shard_that_is_gone_or_damaged_is_named(tmp_path: Path) -> None:
    write_split(tmp_path / "a", _shards(), ABOUT, force=False)
    (tmp_path / "a" / "device-01.npz").unlink()
    with pytest.raises(DataError, match=r"device-01\.npz does not exist"):
        list(read_split(tmp_path / "a"))
    (tmp_path / "a" / "device-01.npz").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"device-01\.npz cannot be read"):
        list(read_split(tmp_path / "a"))
    (tmp_path / "b").mkdir()
    with pytest.raises(DataError, match=r"has no \.npz files"):
        list(read_split(tmp_path / "b"))


def test_an_index_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    out = tmp_path / "a"
    write_split(out, _shards(1), ABOUT, force=False)
    (tmp_path / "mine.npz").write_text("mine")
    (out / INDEX).write_text(json.dumps({"devices": [{"device": "../mine"}]}))
    write_split(out, _shards(1), ABOUT, force=True)
    assert (tmp_path / "mine.npz").read_text() == "mine"

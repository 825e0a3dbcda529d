"""Any byte on disk may flip: a read returns what was written, or an error."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefed.coordinator.storage.run_store import SCHEMA, Store
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.errors import StorageError
from edgefed.wire.tensors import weights_digest
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.exchanges.test_resume import Fuse, PowerCut, cut_in_replies, parts, plan
from tests.run_fixture import COARSE, World

FLIPS = 80
"""Of each kind of state; each on a copy of its own."""


def flip(folder: Path, chance: random.Random, kept: Callable[[Path], bool]) -> str:
    """Change one bit of one of a folder's files; return which, for a failed test's message.

    Mostly of a byte that is not zero, since much of a database is empty.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file() and kept(path))
    sizes = [path.stat().st_size for path in files]
    path = chance.choices(files, sizes)[0]
    data = bytearray(path.read_bytes())
    used = np.flatnonzero(np.frombuffer(data, np.uint8)).tolist()
    place = chance.choice(used) if chance.random() < 0.9 else chance.randrange(len(data))
    bit = chance.randrange(8)
    data[place] ^= 1 << bit
    path.write_bytes(data)
    return f"bit {bit} of byte {place} of {path.name}"


def is_state(path: Path) -> bool:
    """Whether a file is one that a store reads."""
    return path.name.startswith(("edgefed.db", "state-")) and not path.name.endswith("-shm")


def everything(folder: Path) -> dict[str, Any]:
    """Return all that a store knows, as plain values."""
    with closing(Store(folder)) as store:
        return {record.run: told(store, record.run) for record in store.runs()}


def told(store: Store, run: str) -> dict[str, Any]:
    found = store.checkpoint(run)
    state: dict[str, Any] = {}
    if found is not None:
        arrays = {group: weights_digest(each) for group, each in found.state.groups.items()}
        state = {
            "state": (found.state.round, found.state.params, arrays),
            "downlink": found.downlink,
            "open": [{**vars(each), "tasks": list(each.tasks)} for each in found.open],
        }
    return {
        "record": asdict(store.run(run)),
        "rounds": store.rounds(run),
        "groups": store.group(run, "weights"),
        **state,
    }


def interrupted(world: MakeWorld) -> World:
    """Return a run that was killed in the middle of its third exchange, and a row of another."""
    here = world(plan(COARSE), parts(), durable=True)
    with pytest.raises(PowerCut):
        cut_in_replies(here, Fuse(7))
    here.stores[0].save_run(replace(here.record, run="r-0002-ffff", status="failed"))
    return here


def copies(here: World, tmp_path: Path, *, closed: bool) -> Path:
    """Return a copy of the state: with its write-ahead log as a kill leaves it, or closed."""
    if closed:
        here.close()
    kept = tmp_path / "kept"
    shutil.copytree(here.folder, kept, ignore=shutil.ignore_patterns("blobs"))
    assert (kept / "edgefed.db-wal").exists() is not closed
    return kept


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "killed"])
def test_a_flipped_bit_changes_nothing_or_is_told(
    world: MakeWorld, tmp_path: Path, closed: bool
) -> None:
    kept = copies(interrupted(world), tmp_path, closed=closed)
    untouched = tmp_path / "untouched"
    shutil.copytree(kept, untouched)
    wanted = everything(untouched)
    assert wanted["r-0001-0000"]["open"]
    assert len(wanted) == 2
    chance, refused = random.Random(11), 0
    for number in range(FLIPS):
        copy = tmp_path / "copy"
        shutil.copytree(kept, copy)
        where = flip(copy, chance, is_state)
        try:
            found = everything(copy)
        except StorageError as error:
            assert error.code.startswith("storage."), where
            assert error.hint, where
            refused += 1
        else:
            assert found == wanted, (number, where)
        shutil.rmtree(copy)
    assert refused > FLIPS // 4, "most of the bytes matter"


def test_a_damaged_store_that_is_written_to_still_says_so(world: MakeWorld, tmp_path: Path) -> None:
    kept = copies(interrupted(world), tmp_path, closed=True)
    wanted = everything(kept)
    interrupted_exchange = OpenExchange(**wanted["r-0001-0000"]["open"][0])
    chance, refused = random.Random(12), 0
    for number in range(FLIPS // 2):
        copy = tmp_path / "copy"
        shutil.copytree(kept, copy)
        where = flip(copy, chance, is_state)
        try:
            with closing(Store(copy)) as store:
                changed = replace(store.run("r-0001"), reason="written")
                store.save_run(changed)
                store.save_round(changed, {"round": 9}, closes=interrupted_exchange)
            found = everything(copy)
        except StorageError:
            refused += 1
        else:
            row = found["r-0001-0000"]
            assert row["record"].pop("reason") == "written"
            assert row["rounds"].pop() == {"round": 9}
            before = wanted["r-0001-0000"]
            record = {k: v for k, v in before["record"].items() if k != "reason"}
            expected = {**before, "record": record, "open": []}
            assert found == {**wanted, "r-0001-0000": expected}, (number, where)
        shutil.rmtree(copy)
    assert refused > FLIPS // 8


def test_a_run_on_damaged_files_ends_in_its_bits_or_says_why(
    world: MakeWorld, tmp_path: Path
) -> None:
    """The blobs too: one of them is what the devices hold, from which differences are taken."""
    whole = world(plan(COARSE), parts())
    digest = whole.engine().run().weights_digest
    chance, failed = random.Random(13), 0
    for _ in range(12):
        here = interrupted(world)
        here.close()
        where = flip(here.folder, chance, lambda p: is_state(p) or p.parent.name == "blobs")
        here.cache = type(here.cache)(here.folder / "blobs", 1 << 30)
        here.devices._cache = here.cache
        here.stores.clear()
        try:
            record = here.engine().run()
        except StorageError:
            failed += 1
            continue
        failed += record.status == "failed"
        said = record.error.startswith("storage.") and record.hint
        assert said if record.status == "failed" else record.weights_digest == digest, where
    assert failed > 2


def test_the_last_commits_are_missed(world: MakeWorld, tmp_path: Path) -> None:
    """A write-ahead log that ends early is, for SQLite, one that was never longer."""
    kept = copies(interrupted(world), tmp_path, closed=False)
    (kept / "edgefed.db-wal").unlink()
    with pytest.raises(StorageError, match=r"commits .* are missing") as caught:
        Store(kept)
    assert caught.value.code == "storage.damaged"
    assert "edgefed.db-commits" in caught.value.hint


@pytest.mark.parametrize("version", [1, SCHEMA - 1])
def test_what_an_older_version_wrote_is_refused(tmp_path: Path, version: int) -> None:
    with closing(Store(tmp_path)) as store:
        store._db.connection.execute(f"pragma user_version = {version}")
    with pytest.raises(StorageError, match="older EdgeFed") as caught:
        Store(tmp_path)
    assert caught.value.code == "storage.older"
    assert "--state" in caught.value.hint

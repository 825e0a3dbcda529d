"""Any byte of the device store may flip: a read returns what was written, or an error."""

from __future__ import annotations

import random
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from device_agent.tasks.device_store import DeviceStore
from edgefed.errors import StorageError
from edgefed.learn.base.types import Tensors
from edgefed.wire.tensors import digest, weights_digest
from tests.agent.replies import reply
from tests.agent.stored_state import persistent_state, private_state
from tests.coordinator.storage.test_corruption import flip

FLIPS = 100
BLOBS = [bytes([number]) * 700 for number in range(1, 4)]


def remember(folder: Path, *, closed: bool) -> Path:
    """Return a copy of what a device remembers, as a kill leaves it or a proper end."""
    with closing(DeviceStore(folder / "live", 2**20)) as one:
        for number, blob in enumerate(BLOBS):
            state: dict[str, Tensors] = {"feedback/delta": {"w": np.full(50, number, np.float32)}}
            for run in ("r-1", "r-2"):
                kept = reply(number, run, blob)
                groups: dict[str, Tensors] = {
                    "sum": {"w": np.full(30, number, np.float64)},
                    f"of-{number}": {"w": np.ones(9)},
                    f"of-{number - 1}": {},
                }
                entries = [{"number": number, "part": part} for part in range(3)]
                one.commit(kept, {digest(blob): blob}, state, groups, entries, "2024")
        one.forget("r-1", 0)
        if not closed:
            shutil.copytree(folder / "live", folder / "kept")
    if closed:
        shutil.copytree(folder / "live", folder / "kept")
    return folder / "kept"


def everything(folder: Path) -> dict[str, Any]:
    """Return all that a device remembers, as plain values."""
    with closing(DeviceStore(folder, 2**20)) as one:
        replies, persistent = one.replies(), persistent_state(one)
        return {
            "device state": {
                name: weights_digest(arrays) for name, arrays in persistent.device_state.items()
            },
            "ledger": persistent.ledger,
            "replies": replies,
            "one by one": [one.reply(each.exchange) for each in replies],
            "offered": [one.offers(digest(blob)) for blob in BLOBS],
            "blobs": [one.cache.get(ref.digest) for each in replies for ref in each.blobs.values()],
            "private": {
                (run, group): weights_digest(arrays)
                for run in ("r-1", "r-2", "r-3")
                for group, arrays in private_state(one, run).items()
            },
        }


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "killed"])
def test_a_flipped_bit_changes_nothing_or_is_told(tmp_path: Path, closed: bool) -> None:
    kept = remember(tmp_path, closed=closed)
    shutil.copytree(kept, tmp_path / "untouched")
    wanted = everything(tmp_path / "untouched")
    assert len(wanted["replies"]) == 5
    assert len(wanted["private"]) == 2
    assert len(wanted["device state"]) == 2
    assert len(wanted["ledger"]) == 18
    chance, refused = random.Random(21), 0
    for number in range(FLIPS):
        copy = tmp_path / "copy"
        shutil.copytree(kept, copy)
        where = flip(copy, chance, lambda path: not path.name.endswith("-shm"))
        try:
            found = everything(copy)
        except StorageError as error:
            assert error.code.startswith("storage."), where
            assert error.hint, where
            refused += 1
        else:
            assert found == wanted, (number, where)
        shutil.rmtree(copy)
    assert refused > FLIPS // 4

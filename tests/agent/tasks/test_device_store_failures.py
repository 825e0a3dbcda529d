"""A device's disk usage is bounded, and it serves only blobs that a reply names."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from device_agent.tasks.device_store import RUNS_KEPT, DeviceStore
from edgefed.errors import StorageError
from edgefed.learn.base.types import Tensors
from edgefed.wire.tensors import digest
from tests.agent.replies import reply

Private = dict[str, Tensors]


def test_a_reply_that_could_not_be_written_leaves_no_pins(tmp_path: Path) -> None:
    blob = b"d" * 700
    state: Private = {"e": {"w": np.zeros(100, np.float32)}}
    with (
        closing(DeviceStore(tmp_path, 1000)) as one,
        closing(sqlite3.connect(tmp_path / "agent.db")) as other,
    ):
        other.execute("begin immediate")
        one._db.connection.execute("pragma busy_timeout = 1")
        with pytest.raises(StorageError):
            one.commit(reply(1, blob=blob), {digest(blob): blob}, state)
        other.execute("rollback")
        one.cache.put(b"x" * 900)
        assert not one.cache.has(digest(blob))
        assert one.cache.total == 900


def test_replies_of_runs_that_ended_unheard_are_forgotten(tmp_path: Path) -> None:
    with closing(DeviceStore(tmp_path, 2**20)) as one:
        for n in range(RUNS_KEPT + 3):
            one.commit(reply(0, run=f"r-{n}"), {}, None)
        assert [each.run for each in one.replies()] == [f"r-{n}" for n in range(3, RUNS_KEPT + 3)]


def test_a_full_cache_keeps_what_a_reply_names_when_it_is_opened_again(tmp_path: Path) -> None:
    blob = b"d" * 900
    with closing(DeviceStore(tmp_path, 1000)) as one:
        one.commit(reply(1, blob=blob), {digest(blob): blob}, None)
        late = one.cache.put(b"y" * 900)
        one.cache.get(late)
    with closing(DeviceStore(tmp_path, 1000)) as one:
        assert one.cache.get(digest(blob)) == blob


def test_only_blobs_of_replies_are_offered(tmp_path: Path) -> None:
    blob = b"d" * 900
    with closing(DeviceStore(tmp_path, 2**20)) as one:
        state: Private = {"gate": {"w": np.ones(3, np.float32)}}
        one.commit(reply(1, blob=blob), {digest(blob): blob}, state)
        private = str(one._db.connection.execute("select blob from private").fetchone()[0])
        assert one.cache.has(private)
        assert one.offers(digest(blob))
        assert not one.offers(private)
        one.forget("r-1", 1)
        assert not one.offers(digest(blob))

from __future__ import annotations

import random
import sqlite3
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from device_agent.tasks import device_store
from device_agent.tasks.device_store import RUNS_KEPT, DeviceStore
from edgefed.errors import StorageError
from edgefed.learn.base.types import Tensors
from edgefed.wire.tensors import digest
from tests.agent.endless_commits import committing
from tests.agent.replies import reply
from tests.agent.stored_state import persistent_state, private_state

BIG = 2**30


@contextmanager
def memory(folder: Path, cache: int = BIG) -> Iterator[DeviceStore]:
    with closing(DeviceStore(folder, cache)) as opened:
        yield opened


def private(value: float) -> dict[str, dict[str, np.ndarray]]:  # type: ignore[type-arg]
    return {"feedback/delta": {"w": np.full(3, value, np.float32)}, "bias": {"b": np.ones(1)}}


def test_reply_blobs_and_private_state_are_there_after_a_restart(tmp_path: Path) -> None:
    blob = b"delta" * 100
    with memory(tmp_path) as one:
        assert (one.reply("r-1-4"), private_state(one, "r-1")) == (None, {})
        one.commit(reply(4, blob=blob), {digest(blob): blob}, private(4))
    with memory(tmp_path) as one:
        assert one.reply("r-1-4") == reply(4, blob=blob)
        assert one.replies() == [reply(4, blob=blob)]
        assert one.cache.get(digest(blob)) == blob
        state = private_state(one, "r-1")
    assert set(state) == {"feedback/delta", "bias"}
    np.testing.assert_array_equal(state["feedback/delta"]["w"], np.full(3, 4, np.float32))


def test_frozen_weights_outlive_a_run_and_a_restart_unless_they_are_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, frozen, other = b"delta" * 100, b"frozen" * 100, b"weights" * 100
    with memory(tmp_path) as one:
        one.commit(reply(4, blob=kept), {digest(kept): kept}, None)
        for blob in (frozen, other):
            one.cache.put(blob)
        one.note_frozen(digest(frozen))
    with memory(tmp_path) as one:
        one.drop_blobs([digest(other)])
        assert all(one.cache.has(digest(blob)) for blob in (kept, frozen, other))
        one.drop_blobs()
        assert not one.cache.has(digest(other))
        assert one.cache.has(digest(frozen)) and one.cache.has(digest(kept))
        monkeypatch.setattr(device_store, "KEPT_BETWEEN_RUNS", len(frozen) - 1)
        one.drop_blobs()
        assert not one.cache.has(digest(frozen)) and one.cache.has(digest(kept))


def test_an_answer_without_state_leaves_the_state(tmp_path: Path) -> None:
    with memory(tmp_path) as one:
        one.commit(reply(1), {}, private(1))
        one.commit(reply(2), {}, None)
        assert private_state(one, "r-1")["feedback/delta"]["w"][0] == 1


def test_what_is_over_is_forgotten_and_may_be_evicted(tmp_path: Path) -> None:
    blobs = [bytes([n]) * 400 for n in range(3)]
    with memory(tmp_path, cache=1000) as one:
        for n, blob in enumerate(blobs):
            one.commit(reply(n, blob=blob), {digest(blob): blob}, None)
        assert all(one.cache.has(digest(blob)) for blob in blobs)  # pinned beyond the limit
        one.forget("r-2", 9)
        assert len(one.replies()) == 3
        one.forget("r-1", 1)
        assert one.replies() == [reply(2, blob=blobs[2])]
        assert one.cache.total <= 1000
        assert one.cache.has(digest(blobs[2]))


def test_pins_hold_after_a_restart(tmp_path: Path) -> None:
    blob = b"x" * 900
    with memory(tmp_path, cache=1000) as one:
        one.commit(reply(1, blob=blob), {digest(blob): blob}, private(1))
    with memory(tmp_path, cache=1000) as one:
        one.cache.put(b"y" * 900)
        one.cache.put(b"z" * 900)
        assert one.cache.get(digest(blob)) == blob
        assert private_state(one, "r-1") != {}


def test_old_runs_are_forgotten(tmp_path: Path) -> None:
    with memory(tmp_path) as one:
        for n in range(RUNS_KEPT + 2):
            one.commit(reply(0, run=f"r-{n}"), {}, private(n))
        one.commit(reply(1, run="r-2"), {}, private(20))
        one.commit(reply(0, run="r-new"), {}, private(30))
        kept = {n for n in range(RUNS_KEPT + 2) if private_state(one, f"r-{n}")}
        assert kept == {2, 4, 5}
        assert {each.run for each in one.replies()} == {"r-2", "r-4", "r-5", "r-new"}


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    with memory(tmp_path):
        pass
    with closing(sqlite3.connect(tmp_path / "agent.db")) as database:
        database.execute("pragma user_version = 99")
    with pytest.raises(StorageError) as caught:
        DeviceStore(tmp_path, BIG)
    assert caught.value.code == "storage.newer"
    assert caught.value.hint


def test_an_older_version_is_refused(tmp_path: Path) -> None:
    with memory(tmp_path):
        pass
    with closing(sqlite3.connect(tmp_path / "agent.db")) as database:
        database.execute("pragma user_version = 1")
    with pytest.raises(StorageError) as caught:
        DeviceStore(tmp_path, BIG)
    assert caught.value.code == "storage.older"
    assert caught.value.hint


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_damaged_private_state_is_told_and_never_replaced_by_none(
    tmp_path: Path, damage: str
) -> None:
    with memory(tmp_path) as one:
        one.commit(reply(1), {}, private(1))
    (blob,) = (tmp_path / "blobs").iterdir()
    if damage == "missing":
        blob.unlink()
    else:
        blob.write_bytes(blob.read_bytes()[:-1] + b"\xff")
    with memory(tmp_path) as one, pytest.raises(StorageError, match="private state") as caught:
        private_state(one, "r-1")
    assert caught.value.code == "storage.damaged"


def test_a_kept_reply_whose_blob_is_damaged_is_told(tmp_path: Path) -> None:
    blob = b"delta" * 100
    with memory(tmp_path) as one:
        one.commit(reply(4, blob=blob), {digest(blob): blob}, None)
    (tmp_path / "blobs" / digest(blob)).write_bytes(b"delta" * 99 + b"Delta")
    with memory(tmp_path) as one, pytest.raises(StorageError, match="the reply to r-1-4"):
        one.reply("r-1-4")


def test_what_is_no_database_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "agent.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(StorageError, match=r"Cannot use the agent's database .*agent\.db"):
        DeviceStore(tmp_path, BIG)


def test_killed_at_any_moment_it_holds_the_old_or_the_new_and_never_half(tmp_path: Path) -> None:
    chance = random.Random(5)
    said = 0
    for _ in range(6):
        with committing(tmp_path, said) as printed:
            time.sleep(chance.random() * 0.05)
        lines = printed.read_text().splitlines(keepends=True)
        said = max([said, *(int(line) for line in lines if line.endswith("\n"))])
        with memory(tmp_path) as one:
            kept = one.replies()
            newest = kept[-1]
            assert newest.index in (said, said + 1)
            assert set(private_state(one, "r-1")["state"]["index"].tolist()) == {newest.index}
            lasting = persistent_state(one)
            assert set(lasting.device_state["lasting"]["index"].tolist()) == {newest.index}
            assert [each["index"] for each in lasting.ledger] == list(range(1, newest.index + 1))
            for each in kept:
                blob = one.cache.get(each.blobs["delta"].digest)
                assert blob == each.index.to_bytes(4, "big") * 20000
            said = newest.index


def test_replies_of_another_protocol_version_are_not_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with memory(tmp_path) as one:
        with monkeypatch.context() as before:
            before.setattr("edgefed.wire.envelope.FIRST_PROTOCOL", 3)
            one.commit(reply(0, run="r-1"), {}, private(1))
        one.commit(reply(1, run="r-1"), {}, private(2))
        assert [each.index for each in one.replies()] == [1]
        assert one.reply(reply(0, run="r-1").exchange) is None
        assert one.reply(reply(1, run="r-1").exchange) is not None
        assert private_state(one, "r-1")


def test_private_state_takes_memory_only_where_it_is_used(tmp_path: Path) -> None:
    large: dict[str, Tensors]
    large = {name: {"w": np.full(1 << 18, 7, np.float32)} for name in ("one", "two")}
    size = large["one"]["w"].nbytes
    with memory(tmp_path) as one:
        one.commit(reply(4, blob=b"d"), {}, large)
        tracemalloc.start()
        try:
            state = private_state(one, "r-1")
            names = [*state]
            held, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            arrays = state["two"]["w"]
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert names == ["one", "two"]
    assert held < size // 2
    assert peak < 3.5 * size, "the file of both, and one of them"
    np.testing.assert_array_equal(arrays, large["two"]["w"])
    assert "three" not in state

"""What a device keeps across runs is committed with a reply, once, and found again."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from device_agent.tasks import release_ledger as ledger_module
from device_agent.tasks import training_child
from device_agent.tasks.device_store import RUNS_KEPT, DeviceStore, read_releases
from device_agent.tasks.release_ledger import Ledger, LedgerRow
from device_agent.tasks.training_child import StoredArrays
from edgefed.errors import StorageError, UnknownNameError
from edgefed.files.mapped import release
from edgefed.learn.base.types import Tensors
from edgefed.sharing.releases import labels_release
from edgefed.wire.messages import Birth
from edgefed.wire.tensors import digest, pack
from tests.agent.endless_commits import committing
from tests.agent.replies import SESSION, reply
from tests.agent.stored_state import order_of, persistent_state, private_state

BIG = 2**30


def groups(**values: float) -> dict[str, Tensors]:
    """Return a group for each name; an empty one for 0."""
    return {name: {"w": np.full(3, value)} if value else {} for name, value in values.items()}


def kept(store: DeviceStore) -> tuple[dict[str, float], list[object]]:
    found = persistent_state(store)
    state = {name: float(arrays["w"][0]) for name, arrays in found.device_state.items()}
    return state, [entry["n"] for entry in found.ledger]


def test_state_and_ledger_are_there_for_any_run_after_a_restart(tmp_path: Path) -> None:
    with closing(DeviceStore(tmp_path, BIG)) as one:
        assert kept(one) == ({}, [])
        one.commit(reply(1), {}, None, groups(a=1, b=2), [{"n": 1}, {"n": 2}], "first")
        one.commit(reply(1, run="r-2"), {}, None, groups(b=3, c=4), [{"n": 3}], "second")
        assert kept(one) == ({"a": 1, "b": 3, "c": 4}, [1, 2, 3])
    with closing(DeviceStore(tmp_path, BIG)) as one:
        assert kept(one) == ({"a": 1, "b": 3, "c": 4}, [1, 2, 3])
    found = read_releases(tmp_path, "board")
    assert [(e.id, e.time, e.run, e.exchange, dict(e.entry)) for e in found] == [
        (1, "first", "r-1", "r-1-1", {"n": 1}),
        (2, "first", "r-1", "r-1-1", {"n": 2}),
        (3, "second", "r-2", "r-2-1", {"n": 3}),
    ]


def test_an_exchange_is_applied_once(tmp_path: Path) -> None:
    with closing(DeviceStore(tmp_path, BIG)) as one:
        one.commit(reply(1), {}, groups(p=1), groups(a=1), [{"n": 1}])
        one.commit(reply(2), {}, None, groups(a=2), [{"n": 2}])
        other = reply(1).model_copy(update={"samples": 99})
        one.commit(other, {}, groups(p=9), groups(a=9), [{"n": 9}])
        assert kept(one) == ({"a": 2}, [1, 2])
        assert one.reply("r-1-1") == reply(1)
        assert private_state(one, "r-1")["p"]["w"][0] == 1


def test_an_empty_group_is_deleted_with_its_blob(tmp_path: Path) -> None:
    with closing(DeviceStore(tmp_path, 300)) as one:
        one.commit(reply(1), {}, None, groups(a=1, b=1))
        name = digest(pack(groups(a=1)["a"]))
        one.commit(reply(2), {}, None, groups(a=0, never=0))
        assert kept(one) == ({"b": 1}, [])
        one.cache.put(b"x" * 290)
        assert one.cache.has(name), "group b has the same arrays"
        one.commit(reply(3), {}, None, groups(b=0))
        one.cache.put(b"y" * 290)
        assert not one.cache.has(name)
        assert kept(one) == ({}, [])


def test_it_outlives_the_runs_and_a_full_cache(tmp_path: Path) -> None:
    with closing(DeviceStore(tmp_path, 1000)) as one:
        one.commit(reply(0), {}, groups(p=1), groups(a=1), [{"n": 1}])
        for n in range(RUNS_KEPT + 2):
            one.commit(reply(0, run=f"r-1{n}"), {}, groups(p=n + 2))
        assert private_state(one, "r-1") == {}
    with closing(DeviceStore(tmp_path, 1000)) as one:
        for letter in b"xyz":
            one.cache.put(bytes([letter]) * 900)
        assert kept(one) == ({"a": 1}, [1])


def test_a_commit_that_fails_changes_nothing(tmp_path: Path) -> None:
    with closing(DeviceStore(tmp_path, 300)) as one:
        one.commit(reply(1), {}, None, groups(a=1), [{"n": 1}])
        with closing(sqlite3.connect(tmp_path / "agent.db")) as other:
            other.execute("begin immediate")
            one._db.connection.execute("pragma busy_timeout = 1")
            with pytest.raises(StorageError):
                one.commit(reply(2), {}, None, groups(a=2), [{"n": 2}])
            other.execute("rollback")
        assert kept(one) == ({"a": 1}, [1])
        one.cache.put(b"x" * 290)
        assert not one.cache.has(digest(pack(groups(a=2)["a"])))
        one.commit(reply(2), {}, None, groups(a=2), [{"n": 2}])
        assert kept(one) == ({"a": 2}, [1, 2])


def test_the_ledger_grows_over_its_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "PAGE", 4)
    for start in (0, 5):
        with closing(DeviceStore(tmp_path, BIG)) as one:
            for index in range(start, start + 5):
                entries = [{"n": 3 * index + part} for part in range(3)]
                one.commit(reply(index), {}, None, {}, entries)
    found = read_releases(tmp_path, "board")
    assert [each.id for each in found] == list(range(1, 31))
    assert [each.entry["n"] for each in found] == list(range(30))
    with closing(sqlite3.connect(tmp_path / "agent.db")) as other:
        query = "select count(*) from ledger group by page order by min(id)"
        assert [row[0] for row in other.execute(query)] == [4] * 7 + [2]


@pytest.mark.parametrize("order", ["delete from ledger where id = 2", "delete from ledger"])
def test_a_ledger_that_was_shortened_is_told(tmp_path: Path, order: str) -> None:
    with closing(DeviceStore(tmp_path, BIG)) as one:
        one.commit(reply(1), {}, None, {}, [{"n": 1}, {"n": 2}])
    with closing(sqlite3.connect(tmp_path / "agent.db")) as other:
        other.execute(order)
        other.commit()
    with pytest.raises(StorageError, match="ledger") as caught:
        read_releases(tmp_path, "board")
    assert caught.value.code == "storage.damaged"
    with closing(DeviceStore(tmp_path, BIG)) as one, pytest.raises(StorageError):
        one.commit(reply(2), {}, None, {}, [{"n": 3}])


def test_damaged_state_is_told(tmp_path: Path) -> None:
    with closing(DeviceStore(tmp_path, BIG)) as one:
        one.commit(reply(1), {}, None, groups(budget=1))
    (blob,) = (tmp_path / "blobs").iterdir()
    blob.write_bytes(blob.read_bytes()[:-1] + b"\xff")
    with (
        closing(DeviceStore(tmp_path, BIG)) as one,
        pytest.raises(StorageError, match="the device state budget") as caught,
    ):
        persistent_state(one)
    assert caught.value.code == "storage.damaged"


def test_state_of_the_former_version_is_kept(tmp_path: Path) -> None:
    with closing(DeviceStore(tmp_path, BIG)) as one:
        one.commit(reply(1), {}, groups(p=1))
    with closing(sqlite3.connect(tmp_path / "agent.db")) as database:
        database.execute("drop table ledger")
        database.execute("drop table device_state")
        database.execute("pragma user_version = 2")
    with closing(DeviceStore(tmp_path, BIG)) as one:
        assert one.replies() == [reply(1)]
        assert private_state(one, "r-1")["p"]["w"][0] == 1
        one.commit(reply(2), {}, None, groups(a=1), [{"n": 1}])
    with closing(DeviceStore(tmp_path, BIG)) as one:
        assert kept(one) == ({"a": 1}, [1])


def test_what_is_kept_is_read_from_disk_once(tmp_path: Path) -> None:
    def values(stored: StoredArrays, store: DeviceStore) -> dict[str, float]:
        state = stored.persistent(order_of(store)).device_state
        return {name: float(arrays["w"][0]) for name, arrays in state.items()}

    with closing(DeviceStore(tmp_path, BIG)) as one:
        one.commit(reply(1), {}, None, groups(a=1, b=2))
    stored = StoredArrays(tmp_path / "blobs")
    with closing(DeviceStore(tmp_path, BIG)) as one:
        assert values(stored, one) == {"a": 1, "b": 2}
        for blob in (tmp_path / "blobs").iterdir():
            blob.unlink()
        assert values(stored, one) == {"a": 1, "b": 2}
        one.commit(reply(2), {}, None, groups(a=3, b=0, c=4))
        assert values(stored, one) == {"a": 3, "c": 4}
        assert len(stored._unpacked) == 2, "what was replaced is not kept in memory"


@pytest.mark.parametrize("large", [1, 2**30])
def test_state_in_a_large_blob_is_mapped(
    tmp_path: Path, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_child, "LARGE", large)
    with closing(DeviceStore(tmp_path, BIG)) as one:
        one.commit(reply(1), {}, {"p": {"w": np.arange(5.0)}, "q": {}}, groups(a=1))
        private, state = private_state(one, "r-1"), persistent_state(one).device_state
    for array, values in ((private["p"]["w"], np.arange(5.0)), (state["a"]["w"], np.ones(3))):
        assert release(array) == (large == 1)
        assert np.array_equal(array, values)


def birth(*labels: int, data: str = "samples", session: str = SESSION) -> Birth:
    return Birth(
        session=session,
        status="online",
        agent="1",
        torch="2",
        accelerator="cpu",
        hardware="",
        samples=sum(labels) or 9,
        labels=labels,
        classes=3,
        shape=(4,),
        data=data,
    )


def test_label_counts_of_a_birth_are_noted_once_for_the_same_samples(tmp_path: Path) -> None:
    for session in ("0" * 16, "1" * 16):
        with closing(DeviceStore(tmp_path, BIG)) as one:
            one.note_birth(birth(4, 0, 5, session=session), session)
            one.note_birth(birth(4, 0, 5, session=session), session)
    (release,) = read_releases(tmp_path, "board")
    assert (release.id, release.time, release.run, release.exchange) == (1, "0" * 16, "", "")
    assert release.entry == {**labels_release(0, 9, 2), "data": "samples"}


def test_label_counts_are_noted_again_after_the_samples_changed(tmp_path: Path) -> None:
    with closing(DeviceStore(tmp_path, BIG)) as one:
        one.note_birth(birth(4, 0, 5), "first")
        one.commit(reply(1), {}, None, {}, [{"n": 1}], "second")
        one.note_birth(birth(4, 0, 5, data="others"), "third")
        one.note_birth(birth(4, 0, 5), "fourth")
        assert [entry.get("data") for entry in persistent_state(one).ledger] == [
            *("samples", None, "others")
        ]
    assert [each.time for each in read_releases(tmp_path, "board")] == ["first", "second", "third"]


def test_a_birth_without_label_counts_is_no_release(tmp_path: Path) -> None:
    with closing(DeviceStore(tmp_path, BIG)) as one:
        one.note_birth(birth(), "first")
    assert read_releases(tmp_path, "board") == ()


def test_an_algorithm_cannot_make_a_birth_look_noted(tmp_path: Path) -> None:
    with closing(DeviceStore(tmp_path, BIG)) as one:
        noted = {**labels_release(0, 9, 2), "data": "samples"}
        one.commit(reply(1), {}, None, {}, [noted], "first")
        one.note_birth(birth(4, 0, 5), "second")
    assert [each.exchange for each in read_releases(tmp_path, "board")] == ["r-1-1", ""]


def test_a_birth_is_noted_in_the_place_of_what_can_be_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(DeviceStore(tmp_path, BIG)) as one:
        one.cache.put(b"x" * 900)
        write = Ledger.put

        def put(ledger: Ledger, releases: Sequence[LedgerRow]) -> None:
            if one.cache.total:
                raise StorageError("The disk is full.", code="storage.full")
            write(ledger, releases)

        monkeypatch.setattr(Ledger, "put", put)
        one.note_birth(birth(4, 0, 5), "first")
        assert len(persistent_state(one).ledger) == 1


def test_nothing_is_read_where_no_agent_ran(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError):
        read_releases(tmp_path, "board")
    assert list(tmp_path.iterdir()) == []


def test_the_ledger_is_read_whole_while_another_process_commits(tmp_path: Path) -> None:
    with committing(tmp_path, 0):
        read = 0
        for _ in range(300):
            found = read_releases(tmp_path, "board")
            assert [each.entry["index"] for each in found] == list(range(1, len(found) + 1))
            assert len(found) >= read
            read = len(found)
    assert read > 1

"""Runs on disk: atomic writes, and clear errors for damaged or newer states."""

from __future__ import annotations

import gc
import json
import sqlite3
import weakref
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Relay, ReplyRole
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.storage.new_run import create_run
from edgefed.coordinator.storage.run_store import SCHEMA, Store
from edgefed.coordinator.storage.stored_runs import OpenExchange, RunRecord
from edgefed.errors import StorageError, UnknownNameError
from edgefed.events.base.model import RunStatus
from edgefed.learn.base.types import Tensors
from edgefed.wire.messages import BlobRef, Task
from edgefed.wire.tensors import TensorSpec
from tests.algorithms.play import bits
from tests.run_fixture import Ticking

Groups = dict[str, Tensors]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path, durable=False)
    yield made
    made.close()


def state(value: float = 1.0, number: int = 1) -> State:
    groups: dict[str, Tensors] = {
        "weights": {
            "w": np.full((2, 3), value, np.float32),
            "seen": np.array(5, np.int64),
            "odd": np.array([[1, 2], [3, 4]], np.float32).T,
            "none": np.zeros((0, 4), np.float32),
        },
        "memory": {},
        "first": {"w": np.array([np.nan, -0.0], np.float64)},
    }
    return State(number, groups, {"picked": [1, 2], "share": 0.1})


def exchange(record: RunRecord, index: int = 0) -> OpenExchange:
    tasks = tuple(
        Task(
            run=record.run,
            exchange=f"{record.run}-{index}",
            index=index,
            round=1,
            question="fit",
            device=device,
            deadline=3.5,
            seed=2**62,
            algorithm="fedavg",
            settings={"mu": 0.5},
            model={"name": "mlp", "hidden": [4, 5]},
            shape=(1, 8),
            classes=3,
            training={},
            codec="int8",
            samples=7,
            blobs={"weights": BlobRef(digest="ab" * 32, size=9)},
            params={"wanted": [1, 2]},
        )
        for device in ("b", "a")
    )
    roles = {
        "delta": ReplyRole({"w": TensorSpec("float32", (2, 3))}, 64.0, trained=True),
        "means": ReplyRole(None, 1e6),
    }
    return OpenExchange(
        f"{record.run}-{index}",
        index,
        "fit",
        1,
        tasks,
        2,
        1,
        3.5,
        attempt=1,
        lost_grace=2.5,
        reply_roles=roles,
    )


def opened(store: Store, record: RunRecord) -> tuple[OpenExchange, ...]:
    found = store.checkpoint(record.run)
    assert found is not None
    return found.open


def made(store: Store) -> RunRecord:
    return create_run(store, Recipe(), Ticking())


def test_a_state_comes_back_to_the_bit(store: Store) -> None:
    record = made(store)
    store.commit(record, state(), {"weights": {"ref": "x"}})
    found = store.checkpoint(record.run)
    assert found is not None
    assert bits(found.state.groups["memory"]) == []
    assert found.state.groups["weights"]["seen"].shape == ()
    expected = state()
    assert found.state.groups.keys() == expected.groups.keys()
    for group, arrays in expected.groups.items():
        for name, array in arrays.items():
            assert bits(found.state.groups[group][name]) == bits(np.asarray(array, order="C"))
    assert (found.state.round, found.state.params) == (1, expected.params)
    assert found.downlink == {"weights": {"ref": "x"}}
    assert found.open == ()


def test_an_open_exchange_comes_back_as_it_was_and_goes_with_the_commit(store: Store) -> None:
    record = made(store)
    store.commit(record, state(), {})
    store.begin_exchange(record, exchange(record), {"weights": {"ref": "y"}})
    found = store.checkpoint(record.run)
    assert found is not None
    assert found.open == (exchange(record),)
    assert found.downlink == {"weights": {"ref": "y"}}
    store.commit(replace(record, exchanges=1), state(2.0), {}, closes=exchange(record))
    found = store.checkpoint(record.run)
    assert found is not None
    assert found.open == ()


def test_several_exchanges_are_open_until_each_is_closed(store: Store) -> None:
    record = made(store)
    first, second, third, last = (exchange(record, index) for index in (8, 9, 10, 11))
    store.commit(record, state(), {})
    for each in (first, third, second):
        store.begin_exchange(record, each, {})
    assert opened(store, record) == (first, second, third)
    store.commit(record, state(2.0), {}, closes=second)
    assert opened(store, record) == (first, third)
    store.begin_exchange(record, last, {}, closes=first)
    assert opened(store, record) == (third, last)
    store.save_round(record, {"round": 1, "loss": 0.5}, closes=last)
    assert opened(store, record) == (third,)
    store.close_exchange(record.run, third)
    assert opened(store, record) == ()
    assert store._db.rows("tasks", record.run) == []


def test_an_exchange_that_is_begun_again_replaces_its_tasks(store: Store) -> None:
    record = made(store)
    store.commit(record, state(), {})
    begun = exchange(record)
    store.begin_exchange(record, begun, {})
    smaller = replace(begun, tasks=begun.tasks[:1])
    store.begin_exchange(record, smaller, {})
    assert opened(store, record) == (smaller,)


def test_only_the_last_state_is_kept_on_disk(store: Store) -> None:
    record = made(store)
    for number in range(4):
        store.commit(replace(record, exchanges=number), state(number), {})
    files = [path.name for path in store.run_folder(record.run).glob("state-*")]
    assert files == ["state-000003.safetensors"]


def test_what_did_not_change_is_not_written_again(store: Store) -> None:
    record = made(store)
    stack: Tensors = {"inputs": np.arange(1000.0, dtype=np.float32)}
    for number in range(4):
        groups: Groups = {"weights": {"w": np.full(3, number, np.float32)}, "stack": stack}
        store.commit(replace(record, exchanges=number), State(number, groups), {})
        folder = store.run_folder(record.run)
        sizes = {path.name: path.stat().st_size for path in folder.glob("state-*")}
        newest = f"state-{number:06d}.safetensors"
        assert set(sizes) == {"state-000000.safetensors", newest}
        assert number == 0 or sizes[newest] < 1000
    found = store.checkpoint(record.run)
    assert found is not None
    np.testing.assert_array_equal(found.state.groups["stack"]["inputs"], stack["inputs"])
    np.testing.assert_array_equal(found.state.groups["weights"]["w"], [3, 3, 3])
    changed: Groups = {
        "weights": {"w": np.zeros(3, np.float32)},
        "stack": {"inputs": stack["inputs"] + 1},
    }
    store.commit(replace(record, exchanges=9), State(9, changed), {})
    assert [path.name for path in folder.glob("state-*")] == ["state-000009.safetensors"]


def test_the_state_of_an_earlier_run_is_not_held_in_memory(store: Store) -> None:
    first = made(store)
    before = State(1, {"weights": {"w": np.ones(1000, np.float32)}})
    array = weakref.ref(before.groups["weights"]["w"])
    store.commit(first, before, {})
    del before
    assert array() is not None
    second = made(store)
    store.commit(second, state(), {})
    gc.collect()
    assert array() is None
    assert opened(store, first) == ()


def test_the_same_exchange_committed_twice_keeps_everything(store: Store) -> None:
    record = made(store)
    stack: Tensors = {"inputs": np.arange(5.0, dtype=np.float32)}
    for number in range(2):
        groups: Groups = {"weights": {"w": np.full(3, number, np.float32)}, "stack": stack}
        store.commit(record, State(number, groups), {})
    found = store.checkpoint(record.run)
    assert found is not None
    np.testing.assert_array_equal(found.state.groups["stack"]["inputs"], stack["inputs"])


def test_a_round_closes_the_exchange_that_tested_it(store: Store) -> None:
    record = made(store)
    store.commit(record, state(), {})
    store.begin_exchange(record, exchange(record), {})
    store.save_round(record, {"round": 1, "loss": 0.5}, closes=exchange(record))
    assert opened(store, record) == ()
    assert store.rounds(record.run) == [{"round": 1, "loss": 0.5}]


def test_a_round_is_written_once(store: Store) -> None:
    record = made(store)
    for loss in (0.5, 0.25):
        store.save_round(record, {"round": 1, "loss": loss})
    assert store.rounds(record.run) == [{"round": 1, "loss": 0.25}]


def test_a_run_goes_back_to_the_rows_between_two_rounds(store: Store) -> None:
    record = replace(made(store), exchanges=1, round=2)
    question = exchange(record)
    store.begin_exchange(record, question, {})
    store.commit(record, state(1.0, 2), {})
    for number in (1, 2):
        store.save_round(record, {"round": number, "accuracy": None})
    rows, before = store.rows_to_go_on(record.run, {1}), store.checkpoint(record.run)
    store.hold_state(rows)
    later = replace(record, exchanges=2, round=3)
    store.commit(later, state(9.0, 3), {}, closes=question)
    store.save_round(later, {"round": 1, "accuracy": 0.5})
    store.save_round(later, {"round": 3, "accuracy": 0.5})
    store.go_back(record, rows)
    assert store.run(record.run) == record
    assert [(row["round"], row["accuracy"]) for row in store.rounds(record.run)] == [
        (1, None),
        (2, None),
    ]
    after = store.checkpoint(record.run)
    assert after is not None
    assert before is not None
    assert (after.state.round, after.open) == (2, (question,))
    weights = after.state.groups["weights"]
    assert all((weights[n] == a).all() for n, a in before.state.groups["weights"].items())


def test_runs_are_found_by_an_unambiguous_beginning(store: Store) -> None:
    records = [made(store) for _ in range(3)]
    assert [record.run for record in store.runs()] == [r.run for r in reversed(records)]
    assert store.run("r-0002") == records[1]
    for name, message in (("r-000", "beginning of 3 runs"), ("r-9", "No run r-9")):
        with pytest.raises(UnknownNameError, match=message):
            store.run(name)


def test_a_run_that_has_not_begun_has_no_checkpoint(store: Store) -> None:
    assert store.checkpoint(made(store).run) is None


def test_what_a_newer_version_wrote_is_refused(tmp_path: Path) -> None:
    Store(tmp_path).close()
    database = sqlite3.connect(tmp_path / "edgefed.db")
    database.execute(f"pragma user_version = {SCHEMA + 1}")
    database.close()
    with pytest.raises(StorageError) as caught:
        Store(tmp_path)
    assert caught.value.code == "storage.newer"
    assert f"version {SCHEMA + 1}" in caught.value.message
    assert "--state" in caught.value.hint


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "edgefed.db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(StorageError, match="Cannot use the run database"):
        Store(tmp_path)


@pytest.mark.parametrize("damage", ["cut", "garbage", "absent", "another model's"])
def test_a_damaged_state_is_told_with_its_path(store: Store, damage: str) -> None:
    record = made(store)
    store.commit(record, state(), {})
    path = next(store.run_folder(record.run).glob("state-*"))
    match damage:
        case "cut":
            path.write_bytes(path.read_bytes()[:-20])
        case "garbage":
            path.write_bytes(b"\xff" * 300)
        case "absent":
            path.unlink()
        case _:
            save_file({"weights/other": np.ones(3, np.float32)}, path)
    with pytest.raises(StorageError) as caught:
        store.checkpoint(record.run)
    assert record.run in caught.value.message
    assert str(path) in caught.value.message
    assert "backup" in caught.value.hint


def test_a_commit_that_was_cut_leaves_the_state_before(tmp_path: Path) -> None:
    """The file of the next state is there, but the row that names it was never committed."""
    first = Store(tmp_path)
    record = made(first)
    first.commit(record, state(1.0), {})
    path = first.run_folder(record.run) / "state-000001.safetensors"
    path.write_bytes(b"half of it")
    first.close()
    second = Store(tmp_path)
    found = second.checkpoint(record.run)
    assert found is not None
    assert found.state.groups["weights"]["w"][0, 0] == 1.0
    second.commit(replace(record, exchanges=1), state(2.0, 2), {})
    found = second.checkpoint(record.run)
    assert found is not None
    assert found.state.groups["weights"]["w"][0, 0] == 2.0
    second.close()


def test_rows_of_other_versions_are_read_as_far_as_known(store: Store) -> None:
    record = made(store)
    text = json.dumps({**asdict(record), "colour": "red"})
    with store._db.transaction():
        store._db.put("runs", record.run, text)
    assert store.run(record.run) == record


def test_a_row_in_an_unknown_form_is_told(store: Store) -> None:
    with store._db.transaction():
        store._db.put("runs", "r-1", json.dumps({"run": "r-1"}))
    with pytest.raises(StorageError) as caught:
        store.runs()
    assert caught.value.code == "storage.damaged"
    assert "holds run r-1 in a form" in caught.value.message
    assert caught.value.hint


def test_a_run_begins_with_its_recipe_beside_it(store: Store) -> None:
    record = create_run(store, Recipe(seed=5, name="mine"), Ticking(), "beef")
    assert record.run == "r-0001-beef"
    assert (record.name, record.seed, record.status) == ("mine", 5, "waiting")
    assert record.created == "2024-05-06T07:08:09.000Z"
    assert Recipe.model_validate_json(record.recipe) == Recipe(seed=5, name="mine")
    assert 'name = "mine"' in (store.run_folder(record.run) / "recipe.toml").read_text()


def relay(number: int, receiver: str = "b") -> Relay:
    return Relay(f"r-{number}", "a", receiver, f"{number:064x}", 10 + number)


def test_blobs_between_devices_come_and_go_with_commits(store: Store) -> None:
    record, other = made(store), made(store)
    one, two, same = relay(1), relay(2), relay(1, "c")
    store.commit(record, state(), {}, [one, two])
    store.commit(other, state(), {}, [relay(3)])
    assert store.relays() == [one, two, relay(3)]
    store.begin_exchange(record, exchange(record), {}, discarded=[two])
    assert store.relays() == [one, relay(3)]
    # An answer may send again what its device was sent.
    store.commit(record, state(2.0), {}, [one, same], [one], closes=exchange(record))
    assert store.relays() == [relay(3), one, same]
    store.save_round(record, {"round": 1})
    store.save_run(replace(record, status="paused"))
    assert store.relays() == [relay(3), one, same]
    assert Relay.from_json(json.loads(json.dumps(one.to_json()))) == one


@pytest.mark.parametrize("status", ["finished", "failed", "aborted"])
def test_a_run_that_ends_has_no_blobs_between_devices(store: Store, status: RunStatus) -> None:
    record, other = made(store), made(store)
    for each, number in ((record, 1), (other, 2)):
        store.commit(replace(each, status="running"), state(), {}, [relay(number)])
    store.show_unwritten(replace(record, status=status))  # the disk did not take it
    assert store.relays() == [relay(1), relay(2)]
    store.save_run(other)
    assert store.relays() == [relay(2)]
    store.save_run(replace(other, status=status))
    assert store.relays() == []

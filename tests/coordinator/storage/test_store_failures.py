"""The run database is used by the thread that works and by the one that answers requests."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from edgefed.coordinator.storage.run_store import Store
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.errors import StorageError

TURNS = 100


def record(run: str) -> RunRecord:
    return RunRecord(
        run=run,
        name="n",
        algorithm="fedavg",
        recipe="{}",
        seed=1,
        status="running",
        created="2024-01-01T00:00:00.000Z",
    )


def test_threads_take_turns_in_one_database(tmp_path: Path) -> None:
    problems: list[BaseException] = []

    def work(store: Store, run: str) -> None:
        try:
            for number in range(1, TURNS):
                row = {"round": number, "run": run}
                store.save_round(replace(record(run), round=number), row)
                assert store.run(run).round == number
                assert len(store.rounds(run)) == number
        except BaseException as error:
            problems.append(error)

    with closing(Store(tmp_path, durable=False)) as store:
        threads = [threading.Thread(target=work, args=(store, f"r-{k}")) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert problems == []
        assert {len(store.rounds(f"r-{k}")) for k in range(4)} == {TURNS - 1}


def test_a_commit_that_fails_leaves_the_database_usable(tmp_path: Path) -> None:
    with closing(Store(tmp_path, durable=False)) as store:
        store.save_run(record("r-1"))
        with closing(sqlite3.connect(tmp_path / "edgefed.db")) as other:
            other.execute("begin immediate")
            store._db.connection.execute("pragma busy_timeout = 1")
            with pytest.raises(StorageError):
                store.save_run(record("r-2"))
            other.execute("rollback")
        store.save_run(record("r-2"))
        assert [each.run for each in store.runs()] == ["r-2", "r-1"]


def test_runs_stay_in_the_order_of_their_creation(tmp_path: Path) -> None:
    with closing(Store(tmp_path, durable=False)) as store:
        for run in ("r-1", "r-2"):
            store.save_run(record(run))
        store.save_run(replace(record("r-1"), status="finished"))
        assert [each.run for each in store.runs()] == ["r-2", "r-1"]

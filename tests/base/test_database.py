"""The database with digests: what it keeps in memory is what the file holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgefed.database.database import (
    CACHED_ROWS,
    RECENT_GROUPS,
    Database,
    DatabaseTable,
    Schema,
)
from edgefed.errors import StorageError

SCHEMA = Schema(
    1,
    {
        "pairs": DatabaseTable({"name": "text not null", "value": "integer not null"}, ("name",)),
        "parts": DatabaseTable(
            {"part": "text not null", "name": "text not null"}, ("part", "name"), "part"
        ),
    },
    "the test database",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "test.db"


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    opened = Database(path, SCHEMA)
    yield opened
    opened.close()


def put(database: Database, *pairs: tuple[str, int]) -> None:
    with database.transaction():
        for pair in pairs:
            database.put("pairs", *pair)


def statements(database: Database) -> list[str]:
    seen: list[str] = []
    database.connection.set_trace_callback(seen.append)
    return seen


def test_rows_that_were_read_are_not_read_again_until_they_change(database: Database) -> None:
    put(database, ("a", 1))
    assert database.rows("pairs") == [("a", 1)]
    seen = statements(database)
    assert database.rows("pairs") == [("a", 1)]
    assert not [each for each in seen if each.startswith("select")]
    put(database, ("a", 2))
    assert database.rows("pairs") == [("a", 2)]


def test_a_caller_cannot_change_what_is_kept(database: Database) -> None:
    put(database, ("a", 1))
    database.rows("pairs").clear()
    assert database.rows("pairs") == [("a", 1)]


def test_a_commit_of_another_connection_is_seen(database: Database, path: Path) -> None:
    put(database, ("a", 1))
    assert database.rows("pairs") == [("a", 1)]
    other = Database(path, SCHEMA)
    put(other, ("a", 5))
    other.close()
    assert database.rows("pairs") == [("a", 5)]


def test_rows_and_their_digest_are_of_one_commit(database: Database, path: Path) -> None:
    put(database, ("a", 1))
    other = Database(path, SCHEMA)

    def commit_in_between(statement: str) -> None:
        if statement.startswith("select digest from groups"):
            database.connection.set_trace_callback(None)
            put(other, ("a", 2))

    database.connection.set_trace_callback(commit_in_between)
    assert database.rows("pairs") == [("a", 1)]
    assert database.rows("pairs") == [("a", 2)]
    other.close()


def test_two_processes_may_make_the_tables_at_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = Database._check_counter

    def make_in_between(self: Database, commits: int, noted: int) -> None:
        monkeypatch.setattr(Database, "_check_counter", check)
        other = Database(path, SCHEMA)
        put(other, ("a", 1))
        other.close()
        check(self, commits, noted)

    monkeypatch.setattr(Database, "_check_counter", make_in_between)
    late = Database(path, SCHEMA)
    assert late.rows("pairs") == [("a", 1)]
    late.close()


def test_what_is_rolled_back_is_not_seen(database: Database) -> None:
    put(database, ("a", 1))
    assert database.rows("pairs") == [("a", 1)]
    with pytest.raises(KeyError), database.transaction():
        database.put("pairs", "a", 2)
        raise KeyError
    assert database.rows("pairs") == [("a", 1)]


def test_groups_are_kept_apart(database: Database) -> None:
    with database.transaction():
        database.put("parts", "x", "a")
        database.put("parts", "y", "b")
    assert database.rows("parts", "x") == [("x", "a")]
    assert database.rows("parts", "y") == [("y", "b")]
    with database.transaction():
        database.delete("parts", part="x")
    assert database.rows("parts", "x") == []
    assert database.rows("parts", "y") == [("y", "b")]


def test_a_large_group_stays_on_disk(database: Database) -> None:
    put(database, *((f"{number:03}", number) for number in range(CACHED_ROWS + 1)))
    assert len(database.rows("pairs")) == CACHED_ROWS + 1
    seen = statements(database)
    database.rows("pairs")
    assert [each for each in seen if each.startswith("select")]


def test_only_the_groups_that_were_used_last_are_remembered(database: Database) -> None:
    for number in range(RECENT_GROUPS + 50):
        with database.transaction():
            database.put("parts", f"{number:04}", "a")
        database.rows("parts", f"{number:04}")
    assert len(database._cached) == len(database._checked) == RECENT_GROUPS
    seen = statements(database)
    assert database.rows("parts", "0000") == [("0000", "a")]
    assert [each for each in seen if each.startswith("select")]
    with database.transaction():
        database.put("parts", "0000", "b")
    assert database.rows("parts", "0000") == [("0000", "a"), ("0000", "b")]


def test_a_group_that_was_forgotten_is_checked_again(database: Database) -> None:
    for number in range(RECENT_GROUPS + 1):
        with database.transaction():
            database.put("parts", f"{number:04}", "a")
    database.connection.execute("delete from parts where part = '0000'")
    with pytest.raises(StorageError, match="is damaged"), database.transaction():
        database.put("parts", "0000", "b")


def test_the_commits_are_counted_beside_the_file(path: Path) -> None:
    for number in range(1, 4):
        opened = Database(path, SCHEMA)
        put(opened, ("a", number), ("b", number))
        put(opened, ("a", -number))
        opened.close()
    noted = path.with_name(f"{path.name}-commits")
    assert int(noted.read_bytes()[:20]) == 6
    noted.write_bytes(noted.read_bytes()[:19] + b"7" + noted.read_bytes()[20:])
    with pytest.raises(StorageError, match="is damaged"):
        Database(path, SCHEMA)

"""Writes to a disk that takes nothing for a while; on a full one, room is made first."""

from __future__ import annotations

import pytest

from edgefed.coordinator.rounds.disk_space import DiskSpace
from edgefed.errors import StorageError


@pytest.mark.parametrize("code", ["storage.full", "storage.moved", "storage.read_only"])
def test_a_write_is_repeated_until_the_disk_takes_it(code: str) -> None:
    errors = [StorageError("it takes nothing", code=code)] * 3
    calls: list[object] = []

    def act() -> str:
        if errors:
            raise errors.pop()
        return "written"

    def wait(seconds: float) -> bool:
        calls.append(seconds)
        return False

    space = DiskSpace(lambda: calls.append("room"), wait, calls.append)
    assert space.write(act) == "written"
    assert [each for each in calls if each != "room"] == ["it takes nothing", 1.0, 2.0, ""]
    assert calls.count("room") == (3 if code == "storage.full" else 0)


def test_any_other_error_is_raised_at_once() -> None:
    def act() -> None:
        raise StorageError("it may not be used")

    with pytest.raises(StorageError, match="may not be used"):
        DiskSpace(lambda: None, lambda _: False, lambda _: None).write(act)

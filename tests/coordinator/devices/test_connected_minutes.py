"""Presence by hour: counted by the minute, kept for 30 days and across restarts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from edgefed.coordinator.devices.connected_minutes import FILE, HOURS, Presence


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = -30.0  # so that a look is in the middle of each minute

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=self.seconds)


class Scene:
    """Presence, its clock, and the devices that are connected."""

    def __init__(self, folder: Path | None = None, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self.online: list[str] = []
        self.presence = Presence(folder, self.clock, lambda: self.online)

    def pass_minutes(self, count: int, *online: str) -> None:
        """Let minutes pass; every turn of the loop looks twice."""
        self.online = list(online)
        for _ in range(2 * count):
            self.clock.seconds += 30.0
            self.presence.due(self.clock.monotonic())


def test_a_share_is_of_the_minutes_since_a_device_was_first_seen() -> None:
    scene = Scene()
    scene.pass_minutes(60, "a")
    scene.pass_minutes(59, "a", "b")
    assert scene.presence.shares() == {"a": 1.0}  # b for less than an hour
    scene.pass_minutes(61, "b")
    # a: 119 of 180 minutes; b: 120 of the 120 since its first hour.
    assert scene.presence.shares() == {"a": round(119 / 180, 4), "b": 1.0}
    scene.presence.forget("a")
    assert scene.presence.shares().keys() == {"b"}


def test_minutes_older_than_thirty_days_do_not_count() -> None:
    scene = Scene()
    scene.pass_minutes(120, "a")
    scene.clock.seconds += (HOURS - 3) * 3600
    scene.pass_minutes(60)
    assert scene.presence.shares() == {"a": round(120 / 180, 4)}
    scene.pass_minutes(60)  # the first hour of a is gone, the second one is not
    assert scene.presence.shares() == {"a": round(60 / 180, 4)}
    scene.clock.seconds += 2 * HOURS * 3600
    scene.pass_minutes(60, "a")
    assert scene.presence.shares() == {"a": 1.0}


def test_time_without_a_coordinator_counts_for_no_device(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.pass_minutes(60, "a", "b")
    scene.pass_minutes(60, "a")
    scene.presence.save()
    scene.clock.seconds += 10 * 3600
    later = Scene(tmp_path, scene.clock)
    assert later.presence.shares() == {"a": 1.0, "b": 0.5}
    later.pass_minutes(120, "b")
    assert later.presence.shares() == {"a": 0.5, "b": 0.75}


def test_a_kill_loses_ten_minutes_at_most(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.pass_minutes(129, "a")
    killed = Scene(tmp_path, scene.clock)
    assert killed.presence.shares() == {"a": 1.0}
    killed.pass_minutes(120)
    assert killed.presence.shares() == {"a": 0.5}  # 120 of 240 minutes


@pytest.mark.parametrize(
    "damage", [lambda content: b"", lambda content: content[: len(content) // 2], lambda _: b"no"]
)
def test_a_damaged_file_begins_anew_with_a_warning(
    tmp_path: Path, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(tmp_path)
    scene.pass_minutes(60, "a")
    scene.presence.save()
    (tmp_path / FILE).write_bytes(damage((tmp_path / FILE).read_bytes()))
    assert Scene(tmp_path).presence.shares() == {}
    assert "the presence of devices begins anew" in caplog.text


def test_a_clock_that_goes_back_changes_no_hour() -> None:
    scene = Scene()
    scene.pass_minutes(70, "a")
    before = scene.presence.shares()
    back = datetime(1970, 1, 1, tzinfo=timezone.utc)
    scene.clock.now = lambda: back  # type: ignore[method-assign]
    scene.pass_minutes(300, "a")  # in one hour, as it seems
    assert scene.presence.shares() == before

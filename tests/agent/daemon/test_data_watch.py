"""When an agent reads its data again: once they have changed and settled, and it may."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from device_agent.daemon import data_watch
from device_agent.daemon.data_watch import (
    AFTER_RUN,
    EVERY,
    SETTLED,
    DataRead,
    DataUnused,
    DataWatch,
)
from device_agent.daemon.own_data import OwnData
from edgefed.config.fleet.settings import AgentSettings
from tests.base.test_files import files_up_to
from tests.data.helpers import write_image

OLD = 1_000_000_000


class Watched:
    """A folder of photos, and what its watch has read."""

    def __init__(self, folder: Path) -> None:
        self.photos = folder / "photos"
        self.write("cat", "a")
        self.write("dog", "a")
        source = f"folder:{self.photos}?size=4"
        self.own = OwnData(AgentSettings(data=source, state=folder / "state", name="cam"))
        self.own.read()
        self.decoded = folder / "state" / "data" / "decoded"
        self.read: list[DataRead] = []
        self.refused: list[DataUnused] = []
        self.watch = DataWatch(self.own, lambda data: {"n": len(data.train)}, self.take)
        self.watch.allow(True)

    def take(self, reported: DataRead | DataUnused) -> None:
        if isinstance(reported, DataRead):
            self.read.append(reported)
        else:
            self.refused.append(reported)

    def write(self, name: str, file: str, shade: int = 9) -> Path:
        write_image(self.photos / name / f"{file}.png", (4, 4, 3), shade)
        return self.photos / name / f"{file}.png"

    def turns(self, count: int) -> list[float]:
        return [self.watch.turn() for _ in range(count)]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_a_change_is_read_once_it_has_settled(watched: Watched) -> None:
    assert watched.turns(2) == [EVERY, EVERY]
    watched.write("cat", "b")
    assert watched.turns(1) == [SETTLED]
    watched.write("cat", "c")  # files are still being copied
    assert watched.turns(1) == [SETTLED] and not watched.read
    assert watched.turns(3) == [EVERY] * 3
    (read,) = watched.read
    assert len(read.data.train) + len(read.data.test) == 4
    assert read.described == {"n": len(read.data.train)}


def test_a_change_during_a_run_is_reported_once_and_read_after_it(watched: Watched) -> None:
    watched.watch.allow(False)
    added = watched.write("cat", "b")
    assert watched.turns(4) == [SETTLED, *[EVERY] * 3] and not watched.read
    assert [each.reason for each in watched.refused] == [AFTER_RUN]
    watched.watch.allow(True)
    watched.turns(2)
    assert len(watched.read) == 1 and len(watched.refused) == 1, "the agent takes the data instead"
    watched.watch.allow(False)
    added.unlink()
    watched.turns(2)
    assert [each.reason for each in watched.refused] == [AFTER_RUN] * 2


def test_a_change_that_is_taken_back_is_reported_as_no_change(watched: Watched) -> None:
    watched.watch.allow(False)
    watched.write("cat", "b")
    watched.turns(2)
    watched.own.seen = watched.own.look()  # as if the files were those of before
    watched.turns(2)
    assert [each.reason for each in watched.refused] == [AFTER_RUN, ""]


def test_data_that_were_refused_stay_refused_after_a_change_is_taken_back(
    watched: Watched,
) -> None:
    for path in watched.photos.glob("*/*.png"):
        path.write_bytes(b"no image")
    watched.turns(2)
    watched.watch.allow(False)
    seen, watched.own.seen = watched.own.seen, "other files"
    watched.turns(2)
    watched.own.seen = seen
    watched.turns(1)
    first, between, last = (each.reason for each in watched.refused)
    assert first == last and first.startswith("refused its data: ")
    assert between == AFTER_RUN


def test_data_that_were_not_taken_are_read_once_more(watched: Watched) -> None:
    watched.write("cat", "b")
    watched.turns(3)
    watched.watch.forget()
    watched.turns(3)
    assert len(watched.read) == 2


def test_unusable_data_are_told_once_until_they_change(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    for path in watched.photos.glob("*/*.png"):
        path.write_bytes(b"no image")
    with caplog.at_level(logging.WARNING):
        watched.turns(4)
    assert not watched.read
    (said,) = caplog.messages
    assert said.startswith("the data have changed and are not used: ") and "data.empty" in said
    (refused,) = watched.refused
    assert refused.reason.startswith("refused its data: ")
    assert refused.reason.endswith("[data.empty]")
    watched.write("cat", "a")
    watched.turns(2)
    assert len(watched.read) == 1


def test_what_a_look_sees(watched: Watched) -> None:
    def is_seen() -> bool:
        before, watched.own.seen = watched.own.seen, watched.own.look()
        return before != watched.own.seen

    assert not is_seen()
    photo = watched.write("cat", "a", 200)  # as many bytes as before
    os.utime(photo, (OLD, OLD))
    assert is_seen()
    (watched.photos / "elk").mkdir()
    assert is_seen()
    (watched.photos / "classes.txt").write_text("cat\ndog\nelk\n")
    assert is_seen()
    photo.rename(photo.with_name("z.png"))
    assert is_seen()
    (watched.photos / ".hidden").write_text("x")
    (watched.photos / "cat" / ".DS_Store").write_text("x")
    assert not is_seen()
    photo.with_name("z.png").unlink()
    assert is_seen()


def test_a_file_of_data_is_looked_at_too(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, x=np.zeros((4, 2), np.float32), y=np.arange(4) % 2)
    own = OwnData(AgentSettings(data=f"npz:{path}", state=tmp_path / "state"))
    own.read()
    assert own.look() == own.seen
    os.utime(path, (OLD, OLD))
    assert own.look() != own.seen
    own.seen = own.look()
    path.unlink()
    assert own.look() != own.seen


def test_data_that_never_settle_are_read_all_the_same(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_watch, "LONGEST_SETTLING", 0.0)
    for number in range(4):
        watched.write("cat", str(number))
        watched.turns(1)
    assert len(watched.read) == 2


def test_a_source_that_is_away_during_a_run_is_told_until_it_is_back(watched: Watched) -> None:
    watched.watch.allow(False)
    away = watched.photos.rename(watched.photos.with_name("away"))
    watched.turns(4)
    away.rename(watched.photos)
    watched.turns(2)
    reasons = [each.reason for each in watched.refused]
    assert reasons == [
        f"changed its data: {watched.photos} cannot be reached (No such file or directory);"
        " its samples stay in use",
        "",
    ]
    watched.watch.allow(True)
    watched.turns(3)
    assert not watched.read


def test_images_without_room_are_read_when_there_is_room(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.watch.announce()
    watched.write("cat", "b", 100)
    with files_up_to(2 * 4 * 4 * 3 + 1):
        watched.turns(2)
        assert not watched.read, "the samples are those of before"
        watched.turns(3)
    monkeypatch.setattr(data_watch, "RETRY", 0.0)
    monkeypatch.setattr(data_watch, "MOST_TIME", 1e9)
    watched.watch._retry_at = 0.0
    watched.turns(2)
    assert [len(read.data.train) for read in watched.read] == [2]


def test_a_disk_that_takes_nothing_is_tried_again(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_watch, "RETRY", 0.0)
    monkeypatch.setattr(data_watch, "MOST_TIME", 1e9)
    decoded = watched.decoded
    shutil.rmtree(decoded)
    decoded.write_bytes(b"in the way")
    watched.write("cat", "b")
    watched.turns(5)
    (refused,) = watched.refused
    assert refused.reason.startswith(f"refused its data: Cannot use {decoded}")
    decoded.unlink()
    watched.turns(2)
    assert len(watched.read) == 1


def test_samples_that_are_those_of_before_are_not_announced_again(watched: Watched) -> None:
    watched.watch.announce()
    watched.photos.joinpath("cat", "a.png").rename(watched.photos / "cat" / "b.png")
    watched.turns(3)
    assert not watched.read
    watched.write("cat", "c")
    watched.turns(2)
    assert len(watched.read) == 1


def test_files_that_are_not_used_are_logged_once(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    bad = watched.photos / "cat" / "bad.png"
    bad.write_bytes(b"no image")
    for name in ("b", "c"):
        watched.write("cat", name)
        watched.turns(2)
    bad.rename(bad.with_name("worse.png"))
    watched.turns(2)
    assert len(watched.read) == 3
    assert [text.rsplit("/", 1)[1][:9] for text in caplog.messages] == ["bad.png; ", "worse.png"]

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.transport.blob_intake import Ask, BlobIntake
from edgefed.transport.downloads import Downloads
from edgefed.transport.link import Link
from edgefed.wire.blobs import BlobCache, chunk, chunk_count
from edgefed.wire.chunk_staging import Staging
from edgefed.wire.limits import CHUNK_BYTES
from edgefed.wire.messages import Chunk, Need
from edgefed.wire.tensors import digest
from edgefed.wire.topics import Topics

DATA = random.Random(3).randbytes(11 * CHUNK_BYTES + 77)
NAME = digest(DATA)
SOURCE = "device-7"


MakeIntake = Callable[[], BlobIntake]


def new_intake(folder: Path) -> BlobIntake:
    return BlobIntake(BlobCache(folder / "blobs", 2**30), folder / "staging", random.Random(1))


@pytest.fixture
def intake(tmp_path: Path) -> Iterator[MakeIntake]:
    """Make intakes of one folder; a second one is what a killed process is started again as."""
    with ExitStack() as opened:
        yield lambda: opened.enter_context(closing(new_intake(tmp_path)))


def part(name: str, number: int, data: bytes) -> Chunk:
    return Chunk(digest=name, index=number, data=data)


def fetch(one: BlobIntake, now: float = 0.0) -> Need:
    ask = one.fetch(SOURCE, NAME, len(DATA), "pull", now)
    assert ask is not None
    assert ask.source == SOURCE
    return ask.need


def answer(one: BlobIntake, need: Need, data: bytes = DATA, now: float = 0.0) -> Need | None:
    """Send what a request names; return the next request."""
    ask: Ask | None = None
    for number in need.chunks:
        ask = one.chunk(part(NAME, number, chunk(data, number)), now)
    return ask.need if ask is not None else None


@pytest.mark.parametrize("sync", [True, False])
def test_the_disk_is_waited_for_unless_a_blob_can_be_fetched_again(
    sync: bool, intake: MakeIntake, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, waits = intake(), list[int]()
    monkeypatch.setattr(os, "fsync", waits.append)
    ask = one.fetch(SOURCE, NAME, len(DATA), "pull", 0.0, sync=sync)
    assert ask is not None
    need: Need | None = ask.need
    while need is not None:
        need = answer(one, need)
    assert one.cache.get(NAME) == DATA
    assert len(waits) == sync


class _NoLink:
    def subscribe(self, topic_filter: str) -> None:
        self.filter = topic_filter

    def unsubscribe(self, topic_filter: str) -> None:
        assert topic_filter == self.filter


@pytest.mark.parametrize("way", ["broadcast", "pull"])
def test_a_download_does_not_wait_for_the_disk(
    way: str, intake: MakeIntake, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, asked, waits = _NoLink(), list[Need](), list[int]()
    monkeypatch.setattr(os, "fsync", waits.append)
    downloads = Downloads(cast("Link", link), Topics("plant"), intake(), asked.append)
    if way == "pull":
        assert downloads.pull({NAME: len(DATA)}, 0.0) == []
        link.filter = Topics("plant").broadcast_chunk(NAME)
    else:
        downloads.want({NAME: len(DATA)})
        assert downloads.subscribed(link.filter, {NAME}, 0.0) == NAME
    assert asked
    for number in range(chunk_count(len(DATA))):
        downloads.take(part(NAME, number, chunk(DATA, number)), 0.0)
    assert downloads.arrived(NAME) and waits == []


def test_a_whole_blob_ends_in_the_cache(intake: MakeIntake, tmp_path: Path) -> None:
    one = intake()
    need: Need | None = fetch(one)
    assert one.coming(NAME)
    assert one.fraction(NAME) == 0.0
    while need is not None:
        need = answer(one, need)
    assert one.cache.get(NAME) == DATA
    assert not one.coming(NAME)
    assert (one.fraction(NAME), one.next_due) == (1.0, math.inf)
    assert list((tmp_path / "staging").iterdir()) == []


def test_what_is_held_or_coming_is_not_asked_for(intake: MakeIntake) -> None:
    one = intake()
    fetch(one)
    assert one.fetch(SOURCE, NAME, len(DATA), "pull", 0.0) is None
    held = one.cache.put(b"held")
    assert one.fetch(SOURCE, held, 4, "pull", 0.0) is None


def test_wrong_bytes_are_asked_for_again_at_most_twice(intake: MakeIntake) -> None:
    one = intake()
    wrong = bytes(len(DATA))
    need = fetch(one)
    for _ in range(3):
        assert need.chunks[0] == 0
        second = answer(one, need, wrong)
        assert second is not None
        again = answer(one, second, wrong)
        if again is None:
            break
        need = again
    assert (one.failures, one.next_due) == ([NAME], 0.0), "whoever waits for it is told at once"
    assert not one.coming(NAME)
    assert not one.cache.has(NAME)


def test_wrong_bytes_once_do_no_harm(intake: MakeIntake) -> None:
    one = intake()
    second = answer(one, fetch(one), bytes(len(DATA)))
    assert second is not None
    need = answer(one, second)
    while need is not None:
        need = answer(one, need)
    assert one.cache.get(NAME) == DATA
    assert one.failures == []


def test_a_blob_that_never_comes_is_given_up_and_kept_for_a_later_try(intake: MakeIntake) -> None:
    one = intake()
    one.chunk(part(NAME, 0, chunk(DATA, 0)), 0.0)  # nobody asked for it
    fetch(one)
    assert one.chunk(part(NAME, 0, chunk(DATA, 0)), 0.0) is None
    asked = 0
    while (due := one.next_due) < math.inf:
        asked += len(one.due(due))
        assert one.due(due - 0.001) == []
    assert asked == 6
    assert one.failures == [NAME]
    assert fetch(intake()).chunks == tuple(range(1, 9))


def test_all_chunks_left_by_a_killed_process_are_a_blob_at_once(
    intake: MakeIntake, tmp_path: Path
) -> None:
    with closing(Staging(tmp_path / "staging", NAME, len(DATA))) as staging:
        for number in range(staging.count):
            staging.write(number, chunk(DATA, number))
    one = intake()
    assert one.fetch(SOURCE, NAME, len(DATA), "broadcast", 0.0) is None
    assert one.cache.get(NAME) == DATA


def test_all_chunks_left_but_wrong_are_asked_for_again(intake: MakeIntake, tmp_path: Path) -> None:
    with closing(Staging(tmp_path / "staging", NAME, len(DATA))) as staging:
        for number in range(staging.count):
            staging.write(number, bytes(len(chunk(DATA, number))))
    assert fetch(intake()).chunks == tuple(range(8))


def test_a_malformed_chunk_is_ignored(intake: MakeIntake, caplog: pytest.LogCaptureFixture) -> None:
    one = intake()
    fetch(one)
    assert one.chunk(part(NAME, 0, b"short"), 0.0) is None
    assert one.chunk(part(NAME, 4000, b"beyond the end"), 0.0) is None
    assert one.fraction(NAME) == 0.0
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2


def test_dropping_ends_the_requests(intake: MakeIntake) -> None:
    one = intake()
    fetch(one)
    assert [ask.need.digest for ask in one.reconnected(1.0)] == [NAME]
    one.drop(NAME)
    one.drop(NAME)
    assert (one.reconnected(2.0), one.next_due) == ([], math.inf)
    fetch(one)
    one.close()
    assert one.next_due == math.inf


class Sender:
    """Sends what is asked for through a link that loses, repeats and reorders."""

    def __init__(self, data: bytes, fates: random.Random, loss: float) -> None:
        self.data = data
        self._fates = fates
        self._loss = loss

    def answer(self, need: Need) -> list[int]:
        numbers = list(range(chunk_count(len(self.data)))) if need.first else list(need.chunks)
        numbers += self._fates.sample(numbers, self._fates.randrange(len(numbers) + 1))
        self._fates.shuffle(numbers)
        return [number for number in numbers if self._fates.random() >= self._loss]


@settings(max_examples=30, deadline=None)
@given(
    whole=st.integers(0, 30),
    rest=st.integers(1, CHUNK_BYTES),
    seed=st.integers(0, 2**32),
    loss=st.floats(0.0, 0.9),
    broadcast=st.booleans(),
    restarts=st.booleans(),
)
def test_any_pattern_of_losses_ends_in_the_right_bytes(
    tmp_path_factory: pytest.TempPathFactory,
    whole: int,
    rest: int,
    seed: int,
    loss: float,
    broadcast: bool,
    restarts: bool,
) -> None:
    folder = tmp_path_factory.mktemp("intake")
    fates, size = random.Random(seed), whole * CHUNK_BYTES + rest
    sender = Sender(fates.randbytes(size), fates, loss)
    name, now = digest(sender.data), 0.0
    opened = ExitStack()
    one = opened.enter_context(closing(new_intake(folder)))
    ask = one.fetch(SOURCE, name, size, "broadcast" if broadcast else "pull", now)
    # A transfer fails only when seven windows in a row bring nothing at all.
    for _ in range(2000):
        sent = sender.answer(ask.need) if ask is not None else []
        ask = None
        for number in sent:
            ask = one.chunk(part(name, number, chunk(sender.data, number)), now) or ask
        if one.cache.has(name):
            break
        if restarts and fates.random() < 0.1:
            one = opened.enter_context(closing(new_intake(folder)))  # killed and started again
        if ask is None:
            now = max(now, one.next_due)
            ask = next(iter(one.due(now)), None)
        if not one.coming(name) and not one.cache.has(name):
            one.failures.clear()
            ask = one.fetch(SOURCE, name, size, "pull", now)
    opened.close()
    assert one.cache.get(name) == sender.data

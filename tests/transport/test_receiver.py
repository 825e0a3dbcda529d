from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Literal

import pytest

from edgefed.errors import WireError
from edgefed.transport.blob_intake import IDLE, MAX_RETRIES, RETRY, Receiver
from edgefed.wire.blobs import chunk
from edgefed.wire.chunk_staging import Staging
from edgefed.wire.limits import CHUNK_BYTES, WINDOW_REQUEST
from edgefed.wire.messages import Need
from edgefed.wire.tensors import digest

DATA = random.Random(7).randbytes(20 * CHUNK_BYTES + 5)
NAME = digest(DATA)


class Still(random.Random):
    """Jitter that is always in the middle."""

    def random(self) -> float:
        return 0.5


MakeReceiver = Callable[[Literal["broadcast", "pull"]], Receiver]


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[MakeReceiver]:
    """Make receivers of one folder; a second one is what a killed process is started again as."""
    with ExitStack() as files:

        def make(mode: Literal["broadcast", "pull"]) -> Receiver:
            staging = files.enter_context(closing(Staging(tmp_path, NAME, len(DATA))))
            return Receiver(staging, mode, Still())

        yield make


def asks_for(need: Need | None) -> tuple[int, ...]:
    assert need is not None
    assert (need.digest, need.first) == (NAME, False)
    return need.chunks


def test_a_broadcast_is_asked_for_once_and_needs_nothing_more(receiver: MakeReceiver) -> None:
    one = receiver("broadcast")
    assert one.begin(0.0) == Need(digest=NAME, first=True)
    assert one.due == pytest.approx(1.5 * IDLE)
    for number in range(21):
        assert one.take(number, chunk(DATA, number), 10.0) is None
    assert one.staging.finish() == DATA


def test_after_a_silence_it_pulls_what_is_missing(receiver: MakeReceiver) -> None:
    one = receiver("broadcast")
    one.begin(0.0)
    for number in (0, 1, 2, 5):
        one.take(number, chunk(DATA, number), 0.5)
    assert one.due == pytest.approx(0.5 + 1.5 * IDLE)
    assert asks_for(one.ask(one.due)) == (3, 4, 6, 7, 8, 9, 10, 11)


def test_pulling_asks_for_the_next_window_when_the_last_is_complete(receiver: MakeReceiver) -> None:
    one = receiver("pull")
    first = asks_for(one.begin(0.0))
    assert first == tuple(range(WINDOW_REQUEST))
    assert all(one.take(number, chunk(DATA, number), 1.0) is None for number in first[:-1])
    assert asks_for(one.take(first[-1], chunk(DATA, first[-1]), 1.0)) == tuple(range(8, 16))


def test_a_silent_sender_is_asked_again_after_ever_longer_waits_and_given_up(
    receiver: MakeReceiver,
) -> None:
    one = receiver("pull")
    now, waits = 0.0, []
    need: Need | None = one.begin(now)
    while need is not None:
        assert asks_for(need) == tuple(range(WINDOW_REQUEST))
        waits.append((one.due - now) / 1.1)
        now = one.due
        need = one.ask(now)
    assert waits == pytest.approx([RETRY * 2**n for n in range(MAX_RETRIES + 1)])
    assert one.failed


def test_any_chunk_begins_the_patience_anew(receiver: MakeReceiver) -> None:
    one = receiver("pull")
    one.begin(0.0)
    for _ in range(MAX_RETRIES):
        one.ask(one.due)
    now = one.due
    assert one.take(0, chunk(DATA, 0), now) is None
    assert one.due == now + RETRY
    assert asks_for(one.ask(one.due)) == tuple(range(1, 9))
    assert not one.failed


def test_a_lost_connection_begins_again_with_what_is_missing(receiver: MakeReceiver) -> None:
    one = receiver("broadcast")
    one.begin(0.0)
    assert one.reconnected(1.0) == Need(digest=NAME, first=True)
    one.take(3, chunk(DATA, 3), 1.0)
    assert asks_for(one.reconnected(2.0)) == (0, 1, 2, 4, 5, 6, 7, 8)


def test_what_an_earlier_life_received_is_not_asked_for(receiver: MakeReceiver) -> None:
    earlier = receiver("broadcast")
    earlier.begin(0.0)
    for number in range(18):
        earlier.take(number, chunk(DATA, number), 0.0)
    # The process is killed here: nothing is closed.
    assert asks_for(receiver("broadcast").begin(0.0)) == (18, 19, 20)


def test_a_chunk_of_the_wrong_length_leaves_everything_as_it_was(receiver: MakeReceiver) -> None:
    one = receiver("pull")
    one.begin(0.0)
    due = one.due
    for number, data in ((0, b"short"), (21, b"beyond"), (20, chunk(DATA, 0))):
        with pytest.raises(WireError):
            one.take(number, data, 3.0)
    assert (one.due, one.staging.received) == (due, 0)

"""Batches of messages of many devices: what goes in comes out, and what is none is refused."""

from __future__ import annotations

import random

import msgpack
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.errors import WireError
from edgefed.wire import limits
from edgefed.wire.envelope import encode
from edgefed.wire.messages import Message, Need, Progress, Receipt, Reply
from edgefed.wire.site_messages import (
    FROM_DEVICES,
    MAX_BATCH,
    MAX_BATCH_BYTES,
    TO_DEVICES,
    pack_batches,
    unpack_batch,
)
from tests.wire.strategies import damaged, messages, names

said = st.lists(st.tuples(names, st.one_of(*(messages[kind] for kind in FROM_DEVICES))), max_size=6)
SESSION = "a" * 16


def unpacked(batch: bytes) -> list[tuple[str, Message]]:
    return [(device, message) for device, message, _ in unpack_batch(batch, *FROM_DEVICES)]


@settings(max_examples=8, deadline=None)
@given(said)
def test_batches_return_what_was_put_in(pairs: list[tuple[str, Message]]) -> None:
    assert [pair for batch in pack_batches(pairs) for pair in unpacked(batch)] == pairs


@settings(max_examples=8, deadline=None)
@given(said, st.data())
def test_a_damaged_batch_is_read_or_refused(
    pairs: list[tuple[str, Message]], data: st.DataObject
) -> None:
    for batch in pack_batches(pairs):
        try:
            unpacked(data.draw(damaged(batch)))
        except WireError as error:
            assert error.code in ("wire.malformed", "wire.kind", "wire.version")


def test_many_messages_take_several_batches() -> None:
    one = Progress(session=SESSION, state="idle")
    batches = list(pack_batches((f"d-{n}", one) for n in range(2 * MAX_BATCH + 1)))
    assert [len(unpacked(batch)) for batch in batches] == [MAX_BATCH, MAX_BATCH, 1]


def test_no_batch_exceeds_a_message() -> None:
    noise = [
        ("d-1", Receipt(exchange=f"r-{n}", outcome="late", reason=chr(33 + n) * 900))
        for n in range(90)
    ]
    assert len(list(pack_batches(noise))) == 1
    rng = random.Random(0)
    replies = [
        (
            "d-1",
            Reply(
                run="r", exchange="r-1", index=0, device="d-1", session=SESSION, bases={},
                status="ok", inline={f"{n:064x}": rng.randbytes(60_000)},
            ),
        )
        for n in range(12)
    ]  # fmt: skip
    batches = list(pack_batches(replies))
    assert max(map(len, batches)) < limits.MAX_MESSAGE_BYTES - 4000
    assert [pair for batch in batches for pair in unpacked(batch)] == replies


@pytest.mark.parametrize(
    "content",
    [
        b"none",
        msgpack.packb([["d-1"]]),
        msgpack.packb([["d/1", encode(Progress(session=SESSION, state="idle"))]]),
        msgpack.packb([["d-1", "text"]]),
        msgpack.packb({"d-1": b""}),
        msgpack.packb([["d-1", encode(Need(digest="0" * 64, first=True))]]),
        bytes(MAX_BATCH_BYTES + 65 * 1024),
    ],
    ids=["bytes", "row", "name", "text", "map", "kind", "size"],
)
def test_what_is_no_batch_is_refused(content: bytes) -> None:
    with pytest.raises(WireError):
        unpacked(zstandard.ZstdCompressor().compress(content))
    with pytest.raises(WireError):
        unpacked(content)


def test_no_message_travels_in_both_directions() -> None:
    assert not set(FROM_DEVICES) & set(TO_DEVICES)

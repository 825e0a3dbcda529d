"""Replies: small blobs inside, large ones referenced, never larger than a packet."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.wire.envelope import decode, encode
from edgefed.wire.limits import INLINE_BYTES, MAX_MESSAGE_BYTES
from edgefed.wire.messages import BlobRef, Reply
from edgefed.wire.tensors import digest
from edgefed.worker.outcomes import Outcome, make_reply
from tests.worker.tasks import task

SESSION = "0123456789abcdef"


def reply(outcome: Outcome) -> tuple[Reply, dict[str, bytes]]:
    return make_reply(task(), outcome, SESSION)


def test_a_reply_belongs_to_its_task() -> None:
    made, beside = reply(Outcome("ok", samples=9, metrics={"loss": 0.5}, blobs={"delta": b"x"}))
    given = task()
    assert (made.run, made.exchange, made.index) == (given.run, given.exchange, given.index)
    assert (made.device, made.session) == ("device-00", SESSION)
    assert made.bases == {"weights": given.blobs["weights"].digest}
    assert (made.samples, made.metrics) == (9, {"loss": 0.5})
    assert made.inline == {digest(b"x"): b"x"}
    assert beside == {}


def test_every_blob_of_the_task_is_named_by_its_role() -> None:
    one, two = (BlobRef(digest=each * 32, size=3) for each in ("ab", "cd"))
    made, _ = make_reply(task(blobs={"means": one, "mask": two}), Outcome("ok"), SESSION)
    assert made.bases == {"means": "ab" * 32, "mask": "cd" * 32}
    assert make_reply(task(blobs={}), Outcome("ok"), SESSION)[0].bases == {}


def test_a_long_reason_is_cut() -> None:
    made, _ = reply(Outcome("failed", reason="x" * 9000))
    assert made.reason == "x" * 1000


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(1, INLINE_BYTES + 9), max_size=5))
def test_every_blob_is_named_and_is_in_one_place(sizes: list[int]) -> None:
    blobs = {f"role-{k}": bytes([k]) * size for k, size in enumerate(sizes)}
    made, beside = reply(Outcome("ok", samples=1, blobs=blobs))
    assert made.blobs == {
        role: BlobRef(digest=digest(blob), size=len(blob)) for role, blob in blobs.items()
    }
    assert {**made.inline, **beside} == {digest(blob): blob for blob in blobs.values()}
    assert not made.inline.keys() & beside.keys()
    assert sum(map(len, made.inline.values())) <= INLINE_BYTES
    payload = encode(made)
    assert len(payload) <= MAX_MESSAGE_BYTES
    assert decode(payload, Reply) == made

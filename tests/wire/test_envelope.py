"""Envelopes: encoding and decoding are inverse, and invalid input is rejected."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from edgefed.errors import WireError
from edgefed.version import FIRST_PROTOCOL, PROTOCOL
from edgefed.wire import limits
from edgefed.wire.diagnostic_messages import DIAGNOSTIC_MESSAGES, LogTail
from edgefed.wire.enrolment_messages import ENROLMENT_MESSAGES
from edgefed.wire.envelope import decode, encode
from edgefed.wire.message_parts import Part, Since
from edgefed.wire.messages import (
    MESSAGES,
    Birth,
    Cancel,
    Chunk,
    Message,
    Need,
    Progress,
    Reply,
    Request,
    Task,
)
from edgefed.wire.rollout_messages import ROLLOUT_MESSAGES, ModelOffer
from edgefed.wire.site_messages import SITE_MESSAGES
from edgefed.wire.topics import TOPIC_SPECS
from edgefed.wire.update_messages import UPDATE_MESSAGES
from tests.wire.memory import at_most, numbered
from tests.wire.strategies import any_message, damaged, messages

TOO_LARGE = limits.MAX_RELAY_BYTES + limits.MAX_SEAL_BYTES + 1
CANCEL = b"\x93\x06\xa6cancel\xc4\x0d\x81\xa8exchange\xa2e1"
SESSION = "0123abcd"


def envelope(kind: object, body: object, version: object = PROTOCOL) -> bytes:
    packed = body if isinstance(body, bytes) else msgpack.packb(body)
    payload: bytes = msgpack.packb([version, kind, packed])
    return payload


def code_of(payload: bytes, *expected: type[Message]) -> str:
    with pytest.raises(WireError) as caught:
        decode(payload, *(expected or MESSAGES))
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 500
    return caught.value.code


def test_bytes_on_the_wire_do_not_drift() -> None:
    assert encode(Cancel(exchange="e1")) == CANCEL
    assert decode(CANCEL, Cancel) == Cancel(exchange="e1")


@pytest.mark.parametrize(
    "model",
    (*MESSAGES, *DIAGNOSTIC_MESSAGES, *SITE_MESSAGES, *ROLLOUT_MESSAGES, *UPDATE_MESSAGES),
    ids=lambda model: model.kind,
)
def test_every_message_returns_as_it_was(model: type[Message]) -> None:
    @settings(max_examples=8, deadline=None)
    @given(messages[model])
    def check(message: Message) -> None:
        assert decode(encode(message), model) == message

    check()


def test_kinds_are_unique() -> None:
    everything = [*MESSAGES, *ENROLMENT_MESSAGES, *DIAGNOSTIC_MESSAGES, *SITE_MESSAGES]
    everything += [*ROLLOUT_MESSAGES, *UPDATE_MESSAGES]
    assert len({model.kind for model in everything}) == len(everything)


def test_a_log_tail_is_bounded() -> None:
    full = tuple("é" * 160 for _ in range(limits.MAX_LOG_LINES))  # 64,000 bytes
    tail = LogTail(nonce=SESSION, session=SESSION, first=1, lines=full)
    assert decode(encode(tail), LogTail) == tail
    for lines in (["x"] * 201, ["x" * 501], ["é" * 165] * 200):
        body = {"nonce": SESSION, "session": SESSION, "first": 1, "lines": lines}
        assert code_of(envelope("log_tail", body), LogTail) == "wire.malformed"


def test_open_values_return_as_json_would_return_them() -> None:
    request = Request(nonce=SESSION, action="run", arguments={"a": (1, [2, {"b": (None,)}])})
    assert decode(encode(request), Request).arguments == {"a": [1, [2, {"b": [None]}]]}


def test_a_full_chunk_fits() -> None:
    chunk = Chunk(digest="f" * 64, index=0, data=b"\xff" * limits.CHUNK_BYTES)
    assert decode(encode(chunk), Chunk) == chunk


def test_the_expected_class_is_chosen_by_kind() -> None:
    need = Need(digest="a" * 64, first=False, chunks=(1, 2))
    assert decode(encode(need), Cancel, Need) == need
    assert code_of(encode(need), Cancel) == "wire.kind"
    assert code_of(envelope("nonsense", {}), Cancel) == "wire.kind"


def test_another_version_is_named_whatever_follows() -> None:
    for payload in (
        envelope("cancel", {"exchange": "e"}, version=PROTOCOL + 1),
        envelope("cancel", {"exchange": "e"}, version=FIRST_PROTOCOL - 1),
        msgpack.packb([2**40, "x"]),
        msgpack.packb([0]),
    ):
        assert code_of(payload) == "wire.version"


OLD = Progress(session=SESSION, state="idle")
OFFER = ModelOffer(session=SESSION, rollout="m-00000000", action="install", digest="0" * 64, size=1)


@pytest.mark.parametrize(
    ("message", "version", "lacks"),
    [
        (OLD, FIRST_PROTOCOL, {"may_train", "resumes_in"}),
        (Progress(session=SESSION, state="paused", may_train=False), PROTOCOL, {"resumes_in"}),
        (Progress(session=SESSION, state="paused", resumes_in=0.0), PROTOCOL, {"may_train"}),
        (OFFER, PROTOCOL, set()),
    ],
)
def test_a_message_has_the_oldest_version_that_has_all_it_says(
    message: Message, version: int, lacks: set[str]
) -> None:
    number, kind, body = msgpack.unpackb(encode(message))
    assert (number, kind) == (version, message.kind)
    assert message.model_dump().keys() - msgpack.unpackb(body).keys() == lacks
    if lacks:
        assert decode(encode(message), Progress) == message


def test_newer_fields_have_defaults_and_stand_in_messages_themselves() -> None:
    """One in a part of a message would be sent to devices that refuse it."""
    models = {spec.message for spec in TOPIC_SPECS.values()}
    newer = [field for model in models for field in model.model_fields.values() if _is_newer(field)]
    assert len(newer) >= 5
    assert not any(field.is_required() for field in newer)
    parts = [field for part in Part.__subclasses__() for field in part.model_fields.values()]
    assert not any(map(_is_newer, parts))


def _is_newer(field: FieldInfo) -> bool:
    return any(isinstance(mark, Since) for mark in field.metadata)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        CANCEL[:-1],
        CANCEL + b"\x00",
        b"\xc1",
        msgpack.packb({"a": 1}),
        msgpack.packb([]),
        msgpack.packb([True, "cancel", b"\x80"]),
        msgpack.packb([PROTOCOL, "cancel"]),
        msgpack.packb([PROTOCOL, "cancel", {"exchange": "e"}]),
        msgpack.packb([PROTOCOL, b"cancel", b"\x80"]),
        msgpack.packb([PROTOCOL, "c" * 65, b"\x80"]),
        envelope("cancel", {}),
        envelope("cancel", {"exchange": 3}),
        envelope("cancel", {"exchange": "e", "more": 1}),
        envelope("cancel", ["e"]),
        envelope("cancel", b"\x81\xa8exchange\xa2e1\x00"),
        envelope("cancel", b"\x82\xa8exchange\xa2e1\xa8exchange\xa2e2"),
        envelope("cancel", {"exchange": "e" * 129}),
        envelope("cancel", {b"exchange": "e"}),
        envelope("cancel", b"\x81\xa8exchange\xa2\xff\xfe"),
        envelope("cancel", b"\x81\xa8exchange\xd4\x01\x00"),
        envelope("cancel", b"\x81\xa8exchange\xc7\x00\x01"),
        b"\x00" * (limits.MAX_MESSAGE_BYTES + 1),
    ],
    ids=numbered,
)
def test_malformed_payloads_are_refused(payload: bytes) -> None:
    assert code_of(payload, Cancel) == "wire.malformed"


KEY, SIGNATURE = bytes(8), bytes(64)


@pytest.mark.parametrize(
    "seal",
    [
        (KEY,),
        (KEY, SIGNATURE),
        (KEY, SIGNATURE, b"", b""),
        (KEY, SIGNATURE, "certificate"),
        (KEY, "s" * 64, b""),
        ("k" * 8, SIGNATURE, b""),
        (KEY[:-1], SIGNATURE, b""),
        (KEY, SIGNATURE + b"\x00", b""),
        (KEY, SIGNATURE, bytes(limits.MAX_CERTIFICATE_BYTES + 1)),
    ],
    ids=numbered,
)
def test_proofs_of_another_form_are_refused(seal: tuple[Any, ...]) -> None:
    parts = msgpack.unpackb(CANCEL)
    right = (KEY, SIGNATURE, bytes(limits.MAX_CERTIFICATE_BYTES))
    assert decode(msgpack.packb((*parts, *right)), Cancel) == Cancel(exchange="e1")
    assert code_of(msgpack.packb((*parts, *seal)), Cancel) == "wire.malformed"


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        {"deep": [float("inf")]},
        "x" * (limits.MAX_TEXT + 1),
        [0] * (limits.MAX_ITEMS + 1),
        nested(limits.MAX_DEPTH - 1),
        nested(400),
        b"",
        {"deep": [b"bytes"]},
    ],
    ids=numbered,
)
def test_neither_side_lets_pass_what_must_not_travel(value: Any) -> None:
    fields: dict[str, Any] = {"nonce": SESSION, "action": "a", "arguments": {"value": value}}
    with pytest.raises(WireError) as caught:
        encode(Request(**fields))
    assert caught.value.code == "wire.malformed"
    assert code_of(envelope("request", fields), Request) == "wire.malformed"


@pytest.mark.parametrize("value", [msgpack.ExtType(5, b"x"), msgpack.Timestamp(1)], ids=numbered)
def test_extensions_of_msgpack_are_refused(value: Any) -> None:
    fields = {"nonce": SESSION, "action": "a", "arguments": {"value": value}}
    assert code_of(envelope("request", fields), Request) == "wire.malformed"


def test_limits_are_inclusive() -> None:
    arguments = {
        "text": "é" * limits.MAX_TEXT,
        "items": [0] * limits.MAX_ITEMS,
        "depth": nested(limits.MAX_DEPTH - 2),
    }
    request = Request(nonce=SESSION, action="a", arguments=arguments)
    assert decode(encode(request), Request) == request


@pytest.mark.parametrize(
    "value", [object(), {1: 2}, 2**64, np.float32(1), "\ud800", {3}], ids=numbered
)
def test_values_that_are_not_plain_cannot_be_packed(value: Any) -> None:
    with pytest.raises(WireError) as caught:
        encode(Request(nonce=SESSION, action="a", arguments={"value": value}))
    assert caught.value.code == "wire.malformed"


REPLY: dict[str, Any] = {
    "run": "r",
    "exchange": "r-0",
    "index": 0,
    "device": "one",
    "session": SESSION,
    "bases": {},
    "status": "ok",
}


def test_a_metric_that_is_not_finite_is_refused() -> None:
    with pytest.raises(WireError):
        encode(Reply(**REPLY, metrics={"loss": float("nan")}))


@pytest.mark.parametrize("name", ["", "a b", "a\nb", "9", "größe", "x" * 81, "=cmd", "a,b"])
def test_a_metric_of_another_name_than_a_column_has_is_refused(name: str) -> None:
    with pytest.raises(WireError, match="metrics") as caught:
        decode(encode(Reply.model_construct(**REPLY, metrics={name: 1.0})), Reply)
    assert caught.value.code == "wire.malformed"
    reply = Reply(**REPLY, metrics={"numerator_fruit.recall-2": 1.0})
    assert decode(encode(reply), Reply) == reply


def test_a_message_over_the_limit_is_not_sent() -> None:
    arguments = {str(k): "x" * limits.MAX_TEXT for k in range(70)}
    with pytest.raises(WireError) as caught:
        encode(Request(nonce=SESSION, action="a", arguments=arguments))
    assert caught.value.code == "wire.too_large"


@pytest.mark.parametrize(
    "body",
    [
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x91" * 200_000,
        b"\xdc\xff\xff" + b"\xc0" * 65535,
        b"\xdd\x00\x03\x00\x00" + b"\x80" * 0x30000,
        b"\xdc\x0f\xff" + (b"\xdc\x00\x3c" + b"\x80" * 60) * 4095,
    ],
    ids=numbered,
)
def test_bombs_are_refused_without_much_memory(body: bytes) -> None:
    payload = envelope("birth", body)
    with at_most(32 << 20):
        assert code_of(payload, Birth) == "wire.malformed"


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_are_refused(payload: bytes) -> None:
    with pytest.raises(WireError), at_most(4 << 20):
        decode(payload, *MESSAGES)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_damaged_messages_are_refused_or_still_messages(data: st.DataObject) -> None:
    message = data.draw(any_message)
    payload = data.draw(damaged(encode(message)))
    with at_most(4 << 20):
        try:
            read = decode(payload, *MESSAGES)
        except WireError as error:
            assert error.code in ("wire.malformed", "wire.kind", "wire.version")
        else:
            # A changed byte may be another valid value; it must be a whole message then.
            assert decode(encode(read), type(read)) == read


TASK: dict[str, Any] = {
    "run": "r",
    "exchange": "r-0",
    "index": 0,
    "round": 1,
    "question": "fit",
    "device": "one",
    "deadline": 1.0,
    "seed": 1,
    "algorithm": "fedavg",
    "settings": {},
    "model": {},
    "training": {},
    "codec": "fp32",
    "samples": 1,
    "blobs": {},
    "params": {},
}
SENT: dict[str, Any] = {"digest": "a" * 64, "size": 1}
DELIVERED: dict[str, Any] = {**SENT, "exchange": "r-0", "sender": "two"}


@pytest.mark.parametrize("field", ["receivers", "relays"])
def test_a_task_delivers_no_more_than_it_may(field: str) -> None:
    each = {"receivers": "two", "relays": DELIVERED}[field]
    most = {**TASK, field: [each] * limits.MAX_RELAYS}
    assert decode(envelope("task", most), Task)
    assert code_of(envelope("task", {**TASK, field: [each] * (limits.MAX_RELAYS + 1)}), Task)


@pytest.mark.parametrize(
    "changes",
    [
        {"receivers": ["Two"]},
        {"receivers": ["two/#"]},
        {"max_relay_bytes": -1},
        {"max_relay_bytes": limits.MAX_RELAY_BYTES + 1},
        {"relays": [{**DELIVERED, "size": 0}]},
        {"relays": [{**DELIVERED, "size": TOO_LARGE}]},
        {"relays": [{**DELIVERED, "digest": "a" * 63}]},
        {"relays": [{**DELIVERED, "sender": "+"}]},
        {"relays": [{**DELIVERED, "exchange": "e" * 129}]},
        {"relays": [{**DELIVERED, "patches": []}]},
        {"relays": [SENT]},
    ],
    ids=str,
)
def test_wrong_deliveries_are_refused(changes: dict[str, Any]) -> None:
    assert code_of(envelope("task", {**TASK, **changes}), Task) == "wire.malformed"


@pytest.mark.parametrize(
    "relays",
    [
        {"Two": SENT},
        {"two": {**SENT, "size": 0}},
        {"two": {**SENT, "size": TOO_LARGE}},
        {"two": {**SENT, "digest": "../" + "a" * 61}},
        {"two": {**SENT, "patches": []}},
        {"two": {"digest": "a" * 64}},
        {"two": [SENT]},
        {f"d-{number}": SENT for number in range(limits.MAX_RELAYS + 1)},
    ],
    ids=numbered,
)
def test_wrong_blobs_for_other_devices_are_refused(relays: dict[str, Any]) -> None:
    assert decode(envelope("reply", {**REPLY, "relays": {"two": SENT}}), Reply)
    assert code_of(envelope("reply", {**REPLY, "relays": relays}), Reply) == "wire.malformed"

"""The envelope of a message: msgpack array of protocol version, kind, body and, if signed, a seal.

The version is the oldest one that has all that the message says: a field of a newer version is
left out at its default. Devices of the version before therefore understand a coordinator of this
one as long as it uses nothing that they lack.

A signed message has six elements: ``[version, kind, body, key, signature, certificate]``. The
signature covers topic, kind and body (``edgefed.trust.signatures``). The body is a msgpack map of
the message's fields inside a binary string, so that a receiver reads version and kind first.
Unpacking bounds every length (``edgefed.wire.limits``), and creates only plain values and a
validated model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import msgpack
from pydantic import ValidationError

from edgefed.errors import WireError
from edgefed.trust.certificates import KEY_ID_BYTES
from edgefed.trust.signatures import SIGNATURE_BYTES, Seal, Signer
from edgefed.version import FIRST_PROTOCOL, PROTOCOL
from edgefed.wire import limits
from edgefed.wire.message_parts import Since
from edgefed.wire.messages import MESSAGES, Message

MessageT = TypeVar("MessageT", bound=Message)

_OPEN_FIELDS: dict[str, frozenset[str]] = {
    message.kind: frozenset(
        name
        for name, field in message.model_fields.items()
        if field.annotation == dict[str, Any]  # any JSON-like value: its arrays become lists
    )
    for message in MESSAGES
}
_KIND_BYTES = 64
_TEXT_BYTES = 4 * limits.MAX_TEXT  # the longest UTF-8 of that many characters
_BODY_LIMITS: dict[str, Any] = {
    "use_list": False,
    "max_str_len": _TEXT_BYTES,
    "max_bin_len": limits.MAX_MESSAGE_BYTES,
    "max_array_len": limits.MAX_ITEMS,
    "max_map_len": limits.MAX_ITEMS,
    "max_ext_len": 0,
}
_HEAD_LIMITS: dict[str, Any] = {
    "use_list": False,
    "max_str_len": _KIND_BYTES,
    "max_bin_len": limits.MAX_MESSAGE_BYTES,
    "max_array_len": 6,
    "max_map_len": 0,
    "max_ext_len": 0,
}


@dataclass(frozen=True)
class Envelope:
    """A payload whose protocol version is understood, its body still packed.

    Attributes:
        kind: of the message.
        body: its packed fields.
        seal: the proof of its signer; None for a message without a signature.
    """

    kind: str
    body: bytes
    seal: Seal | None = None


def encode(message: Message, topic: str = "", signer: Signer | None = None) -> bytes:
    """Return the payload that carries ``message``.

    Args:
        message: the message to encode.
        topic: where it is published; counts for its signature.
        signer: the party that signs it; None for a message without a signature.

    Raises:
        WireError: ``wire.too_large`` when it does not fit into a packet; ``wire.malformed`` when
            a field holds a value that no receiver accepts, such as NaN, a text over the limit, or
            bytes where any value of JSON is allowed.
    """
    fields = message.model_dump()
    version = max(FIRST_PROTOCOL, message.since)
    for name, since, default in _newer(type(message)):
        if getattr(message, name) == default:
            del fields[name]
        else:
            version = max(version, since)
    open_fields = _OPEN_FIELDS.get(message.kind, frozenset())
    try:
        for name, value in fields.items():
            _check(value, 2, name if name in open_fields else "")
        body = msgpack.packb(fields)
        seal: tuple[bytes, ...] = ()
        if signer is not None:
            made = signer.seal(topic, message.kind, body, introduce=message.introduces)
            seal = (made.key, made.signature, made.certificate)
        payload: bytes = msgpack.packb((version, message.kind, body, *seal))
    except (ValueError, TypeError, OverflowError) as error:
        raise _malformed(f"A {message.kind} message cannot be packed: {_brief(error)}.") from error
    if len(payload) > limits.MAX_MESSAGE_BYTES:
        raise WireError(
            f"A {message.kind} message of {len(payload)} bytes exceeds the limit"
            f" of {limits.MAX_MESSAGE_BYTES}.",
            code="wire.too_large",
            hint="send large values as a blob",
        )
    return payload


def decode(payload: bytes, *expected: type[MessageT]) -> MessageT:
    """Return the message in ``payload``, without a check of its signature.

    Raises:
        WireError: as ``open_envelope`` and ``decode_body`` do.
    """
    return decode_body(open_envelope(payload), *expected)


def decode_body(envelope: Envelope, *expected: type[MessageT]) -> MessageT:
    """Return the message in an envelope, which must be of one of the ``expected`` classes.

    Raises:
        WireError: ``wire.kind`` for a kind that is unknown or not expected here,
            ``wire.malformed`` for anything else.
    """
    model = _expected(envelope.kind, expected)
    try:
        return model.model_validate(_fields(model, envelope.body))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        raise _malformed(
            f"A {model.kind} message has a wrong field {where[:80]!r}: {first['msg'][:200]}."
        ) from error
    except (ValueError, msgpack.UnpackException) as error:
        raise _malformed(f"A {model.kind} message cannot be read: {_brief(error)}.") from error


def open_envelope(payload: bytes) -> Envelope:
    """Return the envelope in ``payload``; its body and its seal are not checked yet.

    Raises:
        WireError: ``wire.version`` for a protocol version that is not understood,
            ``wire.malformed`` for bytes that are not an envelope.
    """
    if len(payload) > limits.MAX_MESSAGE_BYTES:
        raise _malformed(f"A message of {len(payload)} bytes is over the limit.")
    try:
        envelope = msgpack.unpackb(payload, **_HEAD_LIMITS)
    except (ValueError, msgpack.UnpackException) as error:
        raise _malformed(f"A message cannot be read: {_brief(error)}.") from error
    # type and not isinstance, since a truth value is an int too
    if not isinstance(envelope, tuple) or not envelope or type(envelope[0]) is not int:
        raise _malformed("A message is not an array that begins with a protocol version.")
    version, *parts = envelope
    if not FIRST_PROTOCOL <= version <= PROTOCOL:  # the rest may look different in another version
        raise WireError(
            f"A message has protocol version {version}; this program understands {FIRST_PROTOCOL}"
            f" to {PROTOCOL}.",
            code="wire.version",
            hint="install the same version of EdgeFed on the coordinator and on the devices",
        )
    if [type(part) for part in parts[:2]] != [str, bytes]:
        raise _malformed("A message is not an array of version, kind and body.")
    return Envelope(parts[0], parts[1], _seal(parts[2:]))


@cache
def _newer(model: type[Message]) -> tuple[tuple[str, int, Any], ...]:
    """Return name, version and default of the fields that ``FIRST_PROTOCOL`` does not have."""
    return tuple(
        (name, mark.version, field.get_default())
        for name, field in model.model_fields.items()
        for mark in field.metadata
        if isinstance(mark, Since) and mark.version > FIRST_PROTOCOL
    )


def is_understood(payload: bytes) -> bool:
    """Whether a stored message's version is understood, whether or not the rest can be read."""
    try:
        open_envelope(payload)
    except WireError as error:
        return error.code != "wire.version"
    return True


def _seal(parts: list[object]) -> Seal | None:
    """Return the proof behind the body, if there is one."""
    if not parts:
        return None
    key, signature, certificate = parts if len(parts) == 3 else (None, None, None)
    if not (isinstance(key, bytes) and isinstance(signature, bytes)):
        raise _malformed("The signature of a message is not key, signature and certificate.")
    if not isinstance(certificate, bytes) or len(certificate) > limits.MAX_CERTIFICATE_BYTES:
        raise _malformed("The certificate of a message is not one.")
    if len(key) != KEY_ID_BYTES or len(signature) != SIGNATURE_BYTES:
        raise _malformed("The signature of a message does not have the right length.")
    return Seal(key, signature, certificate)


def _expected(kind: str, expected: Iterable[type[MessageT]]) -> type[MessageT]:
    """Return the expected class of that kind."""
    names = []
    for model in expected:
        if model.kind == kind:
            return model
        names.append(model.kind)
    raise WireError(
        f"A message of kind {kind!r} arrived instead of {' or '.join(names) or 'none'}.",
        code="wire.kind",
    )


def _fields(model: type[Message], body: bytes) -> dict[str, Any]:
    """Return the checked fields in a body, tuples as lists where any JSON-like value is allowed.

    Raises:
        ValueError, msgpack.UnpackException: the body is not a bounded map of plain values.
    """
    fields = msgpack.unpackb(body, object_pairs_hook=_unique, **_BODY_LIMITS)
    if not isinstance(fields, dict):
        raise ValueError("the body is not a map")
    open_fields = _OPEN_FIELDS.get(model.kind, frozenset())
    for name, value in fields.items():
        _check(name, 1)
        _check(value, 2, name if name in open_fields else "")
        if name in open_fields:
            fields[name] = _as_json(value)
    return fields


def _unique(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return a dict of pairs whose keys differ."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a map contains a key twice")
    return fields


def _check(value: Any, depth: int, open_field: str = "") -> None:
    """Raise ValueError for a value that is too deep, too long, not finite or not plain.

    Args:
        value: of a message's field.
        depth: its level.
        open_field: name of the field if it is one that cannot hold bytes, as JSON cannot.
    """
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("a number is not finite")
    elif isinstance(value, str):
        if len(value) > limits.MAX_TEXT:
            raise ValueError("a string is too long")
    elif isinstance(value, (tuple, list)):
        _check_items(value, depth, open_field)
    elif isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("a key is not a string")
        _check_items(value, depth, open_field)
        _check_items(value.values(), depth, open_field)
    elif open_field and isinstance(value, bytes):
        raise ValueError(f"{open_field!r} holds bytes")
    elif value is not None and not isinstance(value, (int, bytes)):
        raise ValueError(f"a value is a {type(value).__name__}")


def _check_items(items: Any, depth: int, open_field: str) -> None:
    """Check each of the items of a list or map that is ``depth`` levels deep."""
    if depth > limits.MAX_DEPTH:
        raise ValueError("it is nested too deeply")
    if len(items) > limits.MAX_ITEMS:
        raise ValueError("a list or map is too long")
    for item in items:
        # Most are short texts and small numbers; a call for each costs more than its check.
        kind = type(item)
        if kind is int or kind is bool or (kind is str and len(item) <= limits.MAX_TEXT):
            continue
        _check(item, depth + 1, open_field)


def _as_json(value: Any) -> Any:
    """Return the value of a field as JSON would return it: each tuple is a list."""
    if isinstance(value, (tuple, list)):
        return [_as_json(item) for item in value]
    if isinstance(value, dict):
        return {key: _as_json(item) for key, item in value.items()}
    return value


def _malformed(message: str) -> WireError:
    """Return the error for bytes that are no message."""
    return WireError(message, code="wire.malformed")


def _brief(error: Exception) -> str:
    """Return an error's own words, cut to one short line."""
    return (str(error) or type(error).__name__).splitlines()[0][:200].rstrip(".")

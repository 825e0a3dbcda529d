"""Hypothesis strategies: every message class, tensors, and damage done to bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from edgefed.wire import limits
from edgefed.wire.diagnostic_messages import DIAGNOSTIC_MESSAGES, LogRequest, LogTail
from edgefed.wire.enrolment_messages import (
    ENROLMENT_MESSAGES,
    EnrolmentRequest,
    EnrolmentResponse,
    RenewalOrder,
)
from edgefed.wire.message_parts import DeliveredRelay, Patch, SentRelay
from edgefed.wire.messages import (
    MESSAGES,
    Birth,
    BlobRef,
    Chunk,
    CoordinatorState,
    Message,
    Need,
    Progress,
    Receipt,
    Reply,
    Response,
    Task,
    Telemetry,
)
from edgefed.wire.rollout_messages import ROLLOUT_MESSAGES, ModelAnswer, ModelOffer
from edgefed.wire.site_messages import (
    SITE_MESSAGES,
    GatewayState,
    SiteMessages,
    SummedAnswer,
    SumReply,
    SumRequest,
)
from edgefed.wire.tensors import DTYPES, Array
from edgefed.wire.update_messages import UPDATE_MESSAGES, UpdateOffer, UpdateState

words = st.text(max_size=20)
names = st.from_regex(r"[a-z0-9][a-z0-9-]{0,63}", fullmatch=True)
digests = st.from_regex(r"[0-9a-f]{64}", fullmatch=True)
metric_names = st.from_regex(limits.METRIC_NAME_PATTERN, fullmatch=True)
sessions = st.from_regex(r"[0-9a-f]{8,32}", fullmatch=True)
rollouts = st.from_regex(r"m-[0-9a-f]{8,32}", fullmatch=True)
counts = st.integers(0, 2**53)
class_names = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=12)
finite = st.floats(allow_nan=False, allow_infinity=False)
sizes = st.integers(1, limits.MAX_BLOB_BYTES)

scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | finite | words


def json_like(depth: int) -> st.SearchStrategy[Any]:
    """Values as JSON knows them, lists and maps up to ``depth`` levels."""
    if depth == 0:
        return scalars
    inner = json_like(depth - 1)
    return scalars | st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3)


open_maps = st.dictionaries(words, json_like(3), max_size=3)
patches = st.builds(Patch, base=st.none() | digests, blob=digests, size=sizes)
refs = st.builds(
    BlobRef,
    digest=digests,
    size=sizes,
    patches=st.lists(patches, max_size=3).map(tuple),
    direct=st.lists(patches, max_size=2).map(tuple),
)
blobs = st.dictionaries(words, refs, max_size=3)
relay_sizes = st.integers(1, limits.MAX_RELAY_BYTES)
sent_relays = st.builds(SentRelay, digest=digests, size=relay_sizes)
delivered_relays = st.builds(
    DeliveredRelay, exchange=words, sender=names, digest=digests, size=relay_sizes
)
der = st.binary(max_size=200)

FIELDS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("run", "exchange", "question", "algorithm", "codec", "owner", "agent"), words),
    **dict.fromkeys(("reason", "code", "hint", "role", "broker", "action"), words),
    **dict.fromkeys(("settings", "model", "training", "params", "arguments", "event"), open_maps),
    **dict.fromkeys(("index", "round", "samples", "sent", "number"), counts),
    **dict.fromkeys(("session", "nonce"), sessions),
    **dict.fromkeys(("certificate", "authority", "request"), der),
    "device": names,
    "digest": digests,
    "blobs": blobs,
    "class_names": st.lists(class_names, max_size=4).map(tuple),
}
"""What fields of these names hold, whatever the message."""

summed_answers = st.builds(
    SummedAnswer,
    device=names,
    samples=counts,
    metrics=st.dictionaries(metric_names, finite, max_size=3),
    nonce=sessions,
)

OWN: dict[type[Message], dict[str, st.SearchStrategy[Any]]] = {
    CoordinatorState: {
        "status": st.sampled_from(["online", "lost"]),
        "closed_through": st.integers(-1, 100),
    },
    Task: {
        "deadline": st.floats(1e-3, 30 * 86400),
        "seed": st.integers(0, 2**63 - 1),
        "receivers": st.lists(names, max_size=3).map(tuple),
        "max_relay_bytes": st.integers(0, limits.MAX_RELAY_BYTES),
        "relays": st.lists(delivered_relays, max_size=3).map(tuple),
    },
    Reply: {
        "bases": st.dictionaries(words, digests, max_size=3),
        "status": st.sampled_from(["ok", "refused", "failed"]),
        "metrics": st.dictionaries(metric_names, finite, max_size=3),
        "relays": st.dictionaries(names, sent_relays, max_size=3),
        "inline": st.dictionaries(digests, st.binary(max_size=50), max_size=3),
    },
    Receipt: {"outcome": st.sampled_from(["accepted", "late", "rejected"])},
    Need: {"first": st.booleans(), "chunks": st.lists(counts, max_size=8).map(tuple)},
    Chunk: {
        "index": st.integers(0, limits.MAX_CHUNKS - 1),
        "data": st.binary(min_size=1, max_size=200),
    },
    Birth: {
        "status": st.sampled_from(["online", "lost"]),
        "labels": st.lists(counts, max_size=10).map(tuple),
        "shape": st.lists(counts, max_size=4).map(tuple),
    },
    Progress: {
        "state": st.sampled_from(["idle", "train", "upload", "failed"]),
        "fraction": st.floats(0, 1),
    },
    Telemetry: {
        "cpu": st.none() | finite,
        "memory": st.none() | counts,
        "battery": st.none() | finite,
    },
    Response: {"ok": st.booleans(), "body": st.binary(max_size=200)},
    EnrolmentRequest: {
        "name": st.just("") | names,
        "proof": st.binary(min_size=32, max_size=32),
    },
    EnrolmentResponse: {
        "status": st.sampled_from(["enrolled", "pending", "refused"]),
        "name": words,
        "proof": st.binary(max_size=32),
    },
    GatewayState: {"status": st.sampled_from(["online", "lost"]), "site": words},
    SiteMessages: {"batch": st.binary(max_size=200)},
    SumRequest: {
        "total": st.integers(1, 2**53),
        "always": st.booleans(),
        "lost_grace": st.none() | st.floats(0, limits.MAX_DEADLINE),
        "seconds": st.floats(0, limits.MAX_DEADLINE),
        "devices": st.lists(names, max_size=4).map(tuple),
    },
    UpdateOffer: {
        "offer": sessions,
        "release": names,
        "metadata": st.dictionaries(st.sampled_from(["1.root.json", "timestamp.json"]), refs),
        "during_run": st.booleans(),
        "withdraw": st.booleans(),
    },
    UpdateState: {"release": words, "phase": words, "offer": st.just(""), "reason": words},
    RenewalOrder: {"key": st.binary(min_size=8, max_size=8)},
    LogRequest: {
        "lines": st.integers(1, limits.MAX_LOG_LINES),
        "after": st.none() | counts,
    },
    ModelOffer: {
        "rollout": rollouts,
        "action": st.sampled_from(["install", "withdraw"]),
        "size": sizes,
    },
    ModelAnswer: {
        "rollout": rollouts,
        "outcome": st.sampled_from(["installed", "refused", "failed", "rolled_back"]),
        "score": st.none() | finite,
    },
    LogTail: {
        "shared": st.booleans(),
        "first": counts,
        "lines": st.lists(words, max_size=4).map(tuple),
    },
}

OWN[SumReply] = {
    **OWN[Reply],
    "answers": st.lists(summed_answers, min_size=1, max_size=3).map(tuple),
    "without": st.lists(names, max_size=3).map(tuple),
}


def built(kind: type[Message]) -> st.SearchStrategy[Any]:
    """Messages of a class; other fields that have a default keep it."""
    shared = {name: FIELDS[name] for name in kind.model_fields if name in FIELDS}
    return st.builds(kind, **{**shared, **OWN.get(kind, {})})


messages: dict[type[Message], st.SearchStrategy[Any]] = {
    kind: built(kind)
    for kind in (
        *(*MESSAGES, *ENROLMENT_MESSAGES, *DIAGNOSTIC_MESSAGES, *SITE_MESSAGES),
        *(*ROLLOUT_MESSAGES, *UPDATE_MESSAGES),
    )
}
any_message: st.SearchStrategy[Message] = st.one_of(*messages.values())

shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@st.composite
def arrays(draw: st.DrawFn, floats_only: bool = False) -> dict[str, Array]:
    """A few named arrays of every dtype that travels, with finite values."""
    kinds = ["float32"] if floats_only else sorted(DTYPES)
    found: dict[str, Array] = {}
    for name in draw(st.lists(st.text(max_size=8), max_size=4, unique=True)):
        dtype = draw(st.sampled_from(kinds))
        shape = draw(shapes)
        rng = np.random.default_rng(draw(st.integers(0, 2**32)))
        exponent = draw(st.integers(-30, 4 if dtype == "float16" else 30))
        values = rng.standard_normal(shape) * (1.0 if dtype[0] != "f" else 10.0**exponent)
        if dtype == "float16":
            values = np.clip(values, -60000, 60000)
        if dtype in ("uint8", "bool"):
            values = np.abs(values)
        found[name] = np.asarray(values).astype(dtype)
    return found


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """Return ``whole`` cut short, with one byte changed, or with bytes added; never ``whole``."""
    how = draw(st.sampled_from(["cut", "change", "add"]))
    if how == "cut":
        return whole[: draw(st.integers(0, len(whole) - 1))]
    if how == "add":
        return whole + draw(st.binary(min_size=1, max_size=8))
    position = draw(st.integers(0, len(whole) - 1))
    change = draw(st.integers(1, 255))
    return whole[:position] + bytes([whole[position] ^ change]) + whole[position + 1 :]

"""The digest of a task: every field counts but those of a written list."""

from __future__ import annotations

import re
from typing import Any

import pytest

from edgefed.wire.envelope import decode, encode
from edgefed.wire.message_parts import BlobRef, DeliveredRelay, Patch
from edgefed.wire.messages import Task
from edgefed.wire.task_digest import BLOBS_LEFT_OUT, LEFT_OUT, task_digest
from tests.docs.pages import ROOT

DIGEST, OTHER = "11" * 32, "22" * 32
REF = BlobRef(digest=DIGEST, size=5)

TASK = Task(
    run="r-1",
    exchange="r-1-4",
    index=4,
    round=2,
    question="fit",
    device="device-00",
    deadline=60.0,
    seed=5,
    algorithm="fedavg",
    settings={"mu": 0.5},
    model={"name": "mlp"},
    training={"learning_rate": 0.1},
    codec="fp32",
    samples=9,
    blobs={"weights": REF},
    params={"secure": {"bits": 40, "limits": {"device-00": 9, "device-01": 4}}},
)

CHANGED: dict[str, Any] = {
    "run": "r-2",
    "exchange": "r-1-5",
    "index": 5,
    "round": 3,
    "rounds": 7,
    "question": "fit-again",
    "device": "device-01",
    "deadline": 61.0,
    "seed": 6,
    "algorithm": "fedprox",
    "settings": {"mu": 0.25},
    "model": {"name": "cnn"},
    "shape": (1, 8, 8),
    "classes": 10,
    "class_names": ("cat", "dog"),
    "training": {"learning_rate": 0.2},
    "images": {"size": 8},
    "labels": {"enabled": True},
    "personal": {"preset": "fedper"},
    "secure_aggregation": {"enabled": True},
    "privacy": {"clip": 1.0},
    "evaluation": {"top_k": 5},
    "codec": "bf16",
    "error_feedback": True,
    "samples": 10,
    "blobs": {"weights": REF.model_copy(update={"digest": OTHER})},
    "params": {"secure": {"bits": 1, "limits": {"device-00": 9, "device-01": 4}}},
    "receivers": ("device-01",),
    "max_relay_bytes": 5,
    "relays": (DeliveredRelay(exchange="r-1-3", sender="device-01", digest=DIGEST, size=5),),
    "nonce": "ab" * 8,
    "settled_through": 3,
    "number": 2,
    "merged_number": 1,
    "session": "cd" * 8,
    "certificates": {"device-01": b"certificate"},
}


@pytest.mark.parametrize("field", Task.model_fields)
def test_every_field_of_a_task_counts_but_those_that_are_left_out(field: str) -> None:
    changed = Task(**{**dict(TASK), field: CHANGED[field]})
    assert (task_digest(changed) == task_digest(TASK)) == (field in LEFT_OUT)


@pytest.mark.parametrize("field", BlobRef.model_fields)
def test_every_field_of_a_blob_counts_but_its_patches(field: str) -> None:
    patches = (Patch(base=None, blob=OTHER, size=3),)
    value = {"digest": OTHER, "size": 6, "patches": patches, "direct": patches}[field]
    ref = BlobRef(**{**dict(REF), field: value})
    changed = TASK.model_copy(update={"blobs": {"weights": ref}})
    assert (task_digest(changed) == task_digest(TASK)) == (field in BLOBS_LEFT_OUT)


def test_what_is_left_out_is_on_the_page_and_has_a_reason() -> None:
    """A field that is left out weakens secure aggregation: the page lists it as well."""
    text = (ROOT / "docs" / "secure-aggregation.md").read_text(encoding="utf-8")
    told = text.split("honest rounds: ")[1].split("(`edgefed")[0]
    assert {*LEFT_OUT, *BLOBS_LEFT_OUT} == set(re.findall(r"`(\w+)`", told))
    assert all({**LEFT_OUT, **BLOBS_LEFT_OUT}.values())


def test_more_and_other_blobs_and_parameters_count() -> None:
    updates: list[dict[str, Any]] = [
        {},
        {"blobs": {**TASK.blobs, "mean": REF}},
        {"blobs": {"mean": REF}},
        {"params": {**TASK.params, "more": 0}},
        {"params": {}},
    ]
    assert len({task_digest(TASK.model_copy(update=each)) for each in updates}) == 5


def test_a_task_that_was_sent_has_the_digest_of_the_one_that_was_made() -> None:
    """Lists for tuples, and the order of keys, make no difference."""
    params = {"b": (1, 2.5, -0.0), "a": {"y": None, "x": [True, 2**53]}}
    made = TASK.model_copy(update={"params": params, "class_names": ("cat", "dog")})
    arrived = decode(encode(made), Task)
    turned = made.model_copy(update={"params": dict(reversed(params.items()))})
    assert task_digest(arrived) == task_digest(made) == task_digest(turned)

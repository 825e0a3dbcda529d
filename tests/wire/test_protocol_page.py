"""The page about the protocol tells of every topic, every message and every field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edgefed.version import PROTOCOL
from edgefed.wire import limits
from edgefed.wire.diagnostic_messages import DIAGNOSTIC_MESSAGES
from edgefed.wire.enrolment_messages import ENROLMENT_MESSAGES
from edgefed.wire.message_parts import BlobRef, DeliveredRelay, Part, Patch, SentRelay, WorkCost
from edgefed.wire.messages import MESSAGES, Message
from edgefed.wire.rollout_messages import ROLLOUT_MESSAGES
from edgefed.wire.site_messages import SITE_MESSAGES, SummedAnswer
from edgefed.wire.topics import TOPIC_SPECS, TopicSpec
from edgefed.wire.update_messages import UPDATE_MESSAGES

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("| ").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| `")
]


def levels(spec: TopicSpec) -> str:
    """The topic below the fleet, as the page writes it."""
    who = {
        "down": "/{device}",
        "up": "/{device}",
        "control": "/{user}/{slot}",
        "enrol": "/client.{token}",
    }.get(spec.branch, "")
    leaf = {"events": ""}.get(spec.leaf, f"/{spec.leaf}")
    if (spec.branch, spec.leaf) == ("all", "c"):
        leaf = "/c/{digest}"
    return f"`{spec.branch}{who}{leaf}`"


@pytest.mark.parametrize("spec", TOPIC_SPECS.values(), ids=levels)
def test_every_topic_is_told(spec: TopicSpec) -> None:
    (row,) = [row for row in ROWS if row[0] == levels(spec)]
    assert row[2] == str(spec.qos)
    assert row[3] == ("yes" if spec.retained else "no")
    assert row[4] == f"`{spec.message.kind}`"


@pytest.mark.parametrize(
    "model",
    [
        *(*MESSAGES, *ENROLMENT_MESSAGES, *DIAGNOSTIC_MESSAGES, *SITE_MESSAGES),
        *(*ROLLOUT_MESSAGES, *UPDATE_MESSAGES),
        *(BlobRef, Patch, SentRelay, DeliveredRelay, SummedAnswer, WorkCost),
    ],
    ids=lambda model: model.__name__,
)
def test_every_field_is_told(model: type[Message] | type[Part]) -> None:
    title = f"`{model.kind}`" if issubclass(model, Message) else f"`{model.__name__}`"
    (row,) = [row for row in ROWS if row[0] == title and len(row) == 2]
    told = re.findall(r"`([a-z_]+)`:", row[1])
    assert told == list(model.model_fields)


def test_limits_and_version_are_told() -> None:
    for number in (
        limits.CHUNK_BYTES,
        limits.INLINE_BYTES,
        limits.MAX_MESSAGE_BYTES,
        limits.MAX_TEXT,
        limits.MAX_ITEMS,
        limits.MAX_DEPTH,
        limits.MAX_TENSORS,
        limits.MAX_DIMENSIONS,
        limits.MAX_RELAYS,
        limits.MAX_LOG_LINES,
        limits.MAX_LOG_LINE,
        limits.MAX_LOG_BYTES,
    ):
        assert f" {number:,} " in PAGE.replace("|", " ")
    assert f"version is {PROTOCOL}." in PAGE

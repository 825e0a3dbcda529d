"""A digest of a task, which is equal for all devices with the same task.

Secure aggregation derives masks from it, so that the masks of devices with different tasks do not
cancel. A field of ``Task`` is part of the digest unless ``LEFT_OUT`` names it. Blobs are included
by the digest of their bytes, independent of their encoding on the way.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from edgefed.wire.messages import Task

LEFT_OUT: Mapping[str, str] = {
    "device": "each device has its own name",
    "deadline": "how long the coordinator waits; it changes no answer",
    "seed": "each device shuffles with its own",
    "samples": "what the device itself announced; secure aggregation binds a table of all devices",
    "nonce": "each task has its own",
    "session": "each life of an agent has its own",
    "certificates": "those of the receivers, which differ",
    "relays": "each device receives its own, encrypted by their senders",
    "number": "each device has its own; rounds with masks are not buffered",
    "merged_number": "each device has its own; rounds with masks are not buffered",
    "settled_through": "each device has its own; it changes no answer",
    "receivers": "the other devices, of which each device has others",
}
"""The fields that are not part of the digest, each with the reason."""

BLOBS_LEFT_OUT: Mapping[str, str] = {
    "patches": "ways to the same bytes, which depend on what a device holds",
    "direct": "ways to the same bytes, which depend on what a device holds",
}
"""The fields of a reference to a blob that are not part of the digest."""

_CONTEXT = b"edgefed task 1\0"


def task_digest(task: Task) -> bytes:
    """Return the SHA-256 of a task's fields without ``LEFT_OUT``."""
    blobs = {"__all__": set(BLOBS_LEFT_OUT)}
    fields = task.model_dump(mode="json", exclude={**dict.fromkeys(LEFT_OUT, True), "blobs": blobs})
    # Sorted and without spaces, so that equal tasks have equal bytes
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(_CONTEXT + text.encode()).digest()

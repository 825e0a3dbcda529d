"""All limits on incoming messages and blobs: lengths, depths and counts."""

from __future__ import annotations

CHUNK_BYTES = 120 * 1024
"""Payload of one chunk: below glibc's 128 KiB mmap threshold and every broker's limit."""

MAX_PACKET_BYTES = 256 * 1024
"""Largest MQTT packet, as the generated broker configuration allows."""

MAX_MESSAGE_BYTES = MAX_PACKET_BYTES - 2048
"""Largest payload we publish or read: a packet less its topic and headers."""

INLINE_BYTES = 64 * 1024
"""A blob up to this size travels inside the message that names it."""

MAX_INLINE = 128
"""Most blobs inside one message, such as a small one for each other device of a cohort."""

MAX_BLOB_BYTES = 4 * 1024**3
"""Largest blob a receiver opens a staging file for."""

MAX_CHUNKS = -(-MAX_BLOB_BYTES // CHUNK_BYTES)
"""Chunks of the largest blob."""

MAX_RELAYS = 256
"""Most blobs that one reply sends to other devices, and that one task delivers."""

MAX_RELAY_BYTES = 256 * 1024**2
"""Largest blob that a device sends to another one."""

MAX_SEAL_BYTES = 4096
"""By which a blob for another device may grow when it is encrypted."""

MAX_CERTIFICATE_BYTES = 2048
"""Longest certificate in a message; ours have about 400 bytes."""

MAX_DEPTH = 12
"""Deepest nesting of a message body."""

MAX_TEXT = 4096
"""Longest string in a message, in characters."""

MAX_ITEMS = 4096
"""Most entries of a list or map in a message."""

MAX_CLASS_NAME = 128
"""Longest name of a class, in characters."""

MAX_CLASS_NAMES_BYTES = 64 * 1024
"""Most bytes of a list of class names in UTF-8, so that a message with one stays small."""

METRIC_NAME_PATTERN = r"^[A-Za-z_][A-Za-z0-9_.-]{0,79}$"
"""Names of metrics become columns of files and rows of screens and reports."""

CLASS_NAME_PATTERN = r"^[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]*$"
"""The form of a class's name: no control characters, which a terminal would obey."""

MAX_LOG_LINES = 200
"""Most lines of an agent's log in one message."""

MAX_LOG_LINE = 500
"""Longest line of an agent's log, in characters; longer ones are cut."""

MAX_LOG_BYTES = 64 * 1024
"""Most bytes of the log lines in one message, in UTF-8."""

MAX_PAUSE_REASON = 200
"""Most characters of an operator's reason for pausing a device."""

MAX_TENSORS = 10_000
"""Most tensors in one blob."""

MAX_DEADLINE = 30 * 86400
"""Longest deadline of a task, in seconds."""

MAX_DIMENSIONS = 8
"""Most dimensions of a tensor."""

WINDOW_BROADCAST = 8
"""Chunks a broadcast keeps unacknowledged."""

WINDOW_REQUEST = 8
"""Chunks a receiver asks for at a time."""

CHALLENGE_SECONDS = 5.0
"""Seconds within which an order has to return its challenge."""

ANSWER_SECONDS = 15.0
"""Seconds that a client waits for an answer. More than ``CHALLENGE_SECONDS``, so that an order that
its client has given up is never carried out later."""

"""Digests of database rows: one for each row, and one for each group of rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

Value = str | bytes | int | float | None

_TAGS = {str: b"s", bytes: b"b", int: b"i", float: b"f", type(None): b"n"}


def row_digest(*values: Value) -> bytes:
    """Return the SHA-256 of a row's values; their types and boundaries are part of it."""
    sha = hashlib.sha256()
    for value in values:
        data = value if isinstance(value, bytes) else str(value).encode()
        sha.update(b"%b%d:" % (_TAGS[type(value)], len(data)))
        sha.update(data)
    return sha.digest()


def group_digest(digests: Iterable[Any]) -> bytes:
    """Return the SHA-256 over the digests of a group's rows, in their order."""
    return row_digest(*digests)

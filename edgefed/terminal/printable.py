"""Text from other machines without characters that a terminal would obey."""

from __future__ import annotations

import re

_OBEYED = re.compile(
    r"(\x1b\[(?:0|2|3[1-6])m)|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]"
)
"""The colours of our tables; or control characters, except tab and line feed, and characters that
change the direction of text."""


def printable(text: str, instead: str = " ") -> str:
    """Return a line of text with ``instead`` for each unprintable character."""
    return "".join(char if char.isprintable() else instead for char in text)


def harmless(text: str) -> str:
    """Return lines of text with ``?`` for control sequences of a terminal, except plain colours."""
    return _OBEYED.sub(lambda match: match[1] or "?", text)


def harmless_json(text: str) -> str:
    """Return JSON with escapes in place of control characters; its value is the same."""
    return _OBEYED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)

"""Text from other machines without characters that a terminal would obey."""

from __future__ import annotations

import re

_OBEYED = re.compile(
    r"(\x1b\[(?:0|2|3[1-6])m)|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]"
)
"""The colours of our tables; or control characters but for the tab and the end of a line, and what
turns text around."""


def printable(text: str, instead: str = " ") -> str:
    """Return a line of text with ``instead`` for each character that cannot be shown."""
    return "".join(char if char.isprintable() else instead for char in text)


def harmless(text: str) -> str:
    """Return lines of text with ``?`` for what a terminal would obey, but for plain colours."""
    return _OBEYED.sub(lambda found: found[1] or "?", text)


def harmless_json(text: str) -> str:
    """Return JSON with escapes in place of what a terminal would obey; its value is the same."""
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)

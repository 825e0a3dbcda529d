"""Limits of a TOML text, checked in one pass before a parser builds anything from it.

A parser recurses into nested values, and a dotted key creates a table for each of its parts. A
short text can therefore need more stack, time and memory than its length suggests.
"""

from __future__ import annotations

import re

MAX_DEPTH = 32
"""Most parts of a dotted key, and most arrays and inline tables inside each other."""

MAX_KEYS = 4096
"""Most keys and table headers in one text."""

MAX_WORD = 1024
"""Longest key, all its parts together, and most digits of a number."""

MAX_VALUES = 100_000
"""Most commas, and so most elements of arrays, in one text."""

_TOKEN = re.compile(r"""[^\[\]{}.,=#"'\n]+|#[^\n]*|\"{3}|'{3}|.|\n""")
_STOPS = {
    '"""': re.compile(r'\\.|"{3,5}', re.DOTALL),
    "'''": re.compile(r"'{3,5}"),
    '"': re.compile(r'\\.|"|\n', re.DOTALL),
    "'": re.compile(r"'|\n"),
}
_EDGES = frozenset("[]{},=\n")
"""Characters that end a key or a value."""


def excess(text: str) -> str:
    """Return the limit that a text exceeds, in words such as ``it is …``; empty if none.

    In a text that is not TOML, only the part before the first mistake is sure to be counted. A
    parser does not go further either.
    """
    counts = _Counts()
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        assert token is not None
        at, word = token.end(), token.group()
        if word in _STOPS:
            at = _string_end(text, at, word)
        elif word == "." or word in _EDGES:
            counts.take(word, token.start())
            if limit := counts.excess():
                return limit
        elif not word.startswith("#") and len(word.strip()) > MAX_WORD:
            return f"it has a key or a number of more than {MAX_WORD} characters"
    return ""


class _Counts:
    """Counts of the text so far."""

    def __init__(self) -> None:
        self._depth = self._dots = self._keys = self._commas = 0
        self._edge, self._start, self._longest = "\n", 0, 0

    def take(self, word: str, at: int) -> None:
        """Count a dot, or the end of a key or a value, at a place in the text."""
        if word == ".":
            self._dots += 1
            return
        is_header = word == "[" and not self._depth and self._edge != "="
        self._keys += is_header or word == "="
        self._commas += word == ","
        self._depth += (word in "[{") - (word in "]}")
        if word == "=":
            self._longest = max(self._longest, at - self._start)
        self._edge, self._start, self._dots = word, at + 1, 0

    def excess(self) -> str:
        """Return which limit was passed."""
        if self._dots >= MAX_DEPTH or self._depth > MAX_DEPTH:
            return f"it is nested more than {MAX_DEPTH} deep"
        if self._longest > MAX_WORD:
            return f"it has a key of more than {MAX_WORD} characters"
        if self._keys > MAX_KEYS:
            return f"it has more than {MAX_KEYS} keys"
        return f"it has more than {MAX_VALUES} values" if self._commas > MAX_VALUES else ""


def _string_end(text: str, at: int, opening: str) -> int:
    """Return where a string ends; the end of the text for one that is not closed."""
    while stop := _STOPS[opening].search(text, at):
        at = stop.end()
        if not stop.group().startswith("\\"):
            return len(text) if stop.group() == "\n" else at
    return len(text)
